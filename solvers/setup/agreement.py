"""What all ranks agree on before the first iteration: the seed, their inputs, and what they built of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.transport.handshake import handshake
from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.setup.nets import NetChoice, solver_text


def choose_seed(param: SolverParameter, communicator: Communicator) -> int:
    """Return random_seed, or a number that rank 0 draws; the same on every rank."""
    drawn = int.from_bytes(os.urandom(4), "little")
    return communicator.broadcast_object(param.random_seed if param.random_seed >= 0 else drawn)


def receive_seed(communicator: Communicator) -> int:
    """Return the seed that the trainers have chosen; on servers, collective."""
    seed: int = communicator.broadcast_object(0)
    return seed


def agree_on_inputs(
    param: SolverParameter, choices: Sequence[NetChoice], dtype: torch.dtype, communicator: Communicator
) -> None:
    """Make sure that all ranks were given the same solver, nets, versions and number type; collective.

    Raises:
        RankDisagreement: with the first difference, on every rank.
    """
    if communicator.size == 1:
        return
    facts = {
        "world size": str(communicator.size),
        "solver": solver_text(param),
        "training net": choices[0].text,
    }
    facts.update((f"test net #{index}", choice.text) for index, choice in enumerate(choices[1:]))
    facts["number type"] = str(dtype)
    facts["mgcaffe version"] = version("mgcaffe")
    facts["torch version"] = torch.__version__
    handshake(communicator, facts)


def agree_on_shapes(net: Net, communicator: Communicator) -> None:
    """Make sure that all ranks built the same parameters and read sources of the same size; collective.

    Raises:
        RankDisagreement: with the first difference, on every rank.
    """
    if communicator.size == 1:
        return
    rows = [
        f"layer '{piece.layer_name}': {piece.parameter.shape} at {piece.offset}, lr_mult {piece.lr_mult:g}"
        for piece in net.arena.slices
    ]
    orders = [f"layer '{piece.layer_name}': {piece.parameter.memory_format}" for piece in net.arena.slices]
    sources = [
        f"layer '{layer.name}': {layer.source_records} records of shapes {layer.reshape(())}"
        for layer in net.data_layers
    ]
    handshake(communicator, {"parameters": "\n".join(rows), "data sources": "\n".join(sources)})
    handshake(
        communicator,
        {"order of parameters in memory": "\n".join(orders)},
        hint="a GPU and a CPU keep filters in different orders: let every rank compute on a GPU, or all on the CPU"
        " (solver_mode: CPU)",
    )
