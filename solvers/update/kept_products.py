"""Gradients that are kept as products until the update (`engine/product_gradient.py`), on one rank and on several.

Several ranks exchange the two matrices instead of the gradient: each has all ranks' rows afterwards, and makes the mean
of the gradients as one product of them. With M rows on each of P ranks that is P M (N + K) values instead of N K: with
two ranks and a batch of 16 each, 1.7 MB for AlexNet's fc6 instead of 151 MB. (Xie et al., Distributed Machine Learning
via Sufficient Factor Broadcasting, 2015; Zhang et al., Poseidon, 2017, which chooses by size as well.)

They travel as all other gradients do. In the buffer of gradients they have the weight's place: each rank writes its
rows there, and zeros in the places of the others' rows, so the sum over the ranks has all rows. Plans merge and order
them like any other segment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.transport import ulfm
from mgcaffe.engine import Net
from mgcaffe.engine.arena import ArenaSlice
from mgcaffe.engine.checks.sizes import explain
from mgcaffe.engine.kernels import processor
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.filter import Filter
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.layers.python import Python
from mgcaffe.engine.parameter import KeptProduct, Parameter
from mgcaffe.engine.product_gradient import ProductGradient, suits_product
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Noted
from mgcaffe.solvers.update.updater import Updater

_OURS = "mgcaffe.engine."


class KeptProducts:
    """The gradients of a training net that are kept as products: weights of large inner products, on a CPU.

    Nothing but the update may need their values. It does where several micro-batches add up (`iter_size`), for the norm
    of clipping, in nets that keep their blobs, as pycaffe and debug_info have them, with some updates
    (`Updater.takes_products`), and for weights that several layers share. The gradients get places apart
    (`ParameterArena.keep_apart`).

    Args:
        net: it has its gradients, and nobody has a view of them yet.
        param: the SolverParameter message.
        updater: the net's.
        communicator: the ranks that average gradients; collective, if there are several.
        emit: takes the events.
        borrowers: the nets that were built with `share_with` this one.
    """

    def __init__(
        self,
        net: Net,
        param: SolverParameter,
        updater: Updater,
        communicator: Communicator,
        emit: Emit,
        borrowers: Sequence[Net] = (),
    ) -> None:
        self._net, self._communicator = net, communicator
        ranks = communicator.size
        found = dict(_candidates(net, param, updater))
        self._rows = {weight: rows for weight, rows in found.items() if suits_product(ranks * rows, weight.shape)}
        if ranks > 1 and not self._may_exchange(param, [*found.values()], emit):
            self._rows = {}
        self._pieces: dict[int, list[ArenaSlice]] = {}
        if not self._rows:
            return
        per_row = ranks if ranks > 1 else 0
        sizes = {weight: per_row * rows * sum(weight.shape) for weight, rows in self._rows.items()}
        try:
            net.keep_gradients_apart(sizes, borrowers)
        except MemoryError as error:
            if ranks == 1:
                self._rows = {}  # the gradients stay where they are
                return
            owner = next(piece for piece in net.arena.slices if piece.parameter in sizes)
            explain(net.layers[owner.layer], "giving gradients of large inner products places of their own", error)
            raise
        for piece in net.arena.apart:
            self._pieces.setdefault(piece.layer, []).append(piece)
        if ranks > 1:
            emit(Noted(self._describe()))

    def _may_exchange(self, param: SolverParameter, rows: Sequence[int], emit: Emit) -> bool:
        """Return whether several ranks may exchange products of so many rows; collective.

        A plan file is one for the gradients. Matrices of 16 bits would lose more than gradients do. Layers of users and
        Filter may change how many rows there are. All ranks have to make the same bits of the same matrices, so none
        may have another processor, or another number of threads.
        """
        comm = param.comm_param
        is_plain = comm.allreduce_type == type(comm).FLOAT32 and not comm.plan_file and not ulfm.is_enabled()
        if not (comm.exchange_products and is_plain):
            return False
        machine = processor.name(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()
        found = self._communicator.allgather((machine, tuple(rows), any(map(_may_resize, self._net.layers))))
        if len(set(found)) == 1:
            return not found[0][-1]
        if self._rows:
            other = next(number for number, each in enumerate(found) if each != found[0])
            what = "another processor or number of threads" if found[other][0] != found[0][0] else "other batches"
            text = f"rank {other} has {what} than rank 0"
            emit(Noted(f"Gradients of inner products are exchanged, not the matrices that make them: {text}"))
        return False

    def _describe(self) -> str:
        pieces = self._net.arena.apart
        names = ", ".join(piece.layer_name for piece in pieces)
        size = self._net.arena.diff.element_size() / 2**20
        less, more = size * sum(each.diff_count for each in pieces), size * sum(each.count for each in pieces)
        return (
            f"The gradients of the weights of {names} are exchanged as the two matrices whose product they are,"
            f" {less:.1f} MiB instead of {more:.1f} (comm_param {{ exchange_products: false }} sends the gradients)"
        )

    @contextmanager
    def kept(self, *, together: bool) -> Iterator[None]:
        """Let a backward pass keep the gradients as products.

        Args:
            together: whether something else than the update reads gradients: one rank then does without.
        """
        parameters = [] if together and self._communicator.size == 1 else [*self._rows]
        for parameter in parameters:
            parameter.keeps_product = True
        try:
            yield
        finally:
            for parameter in parameters:
                parameter.keeps_product = False

    def layer_done(self, layer: int) -> None:
        """Write what is exchanged of a layer's products to the buffer of gradients; one rank exchanges nothing."""
        if self._communicator.size > 1:
            for piece in self._pieces.get(layer, ()):
                self._send(piece)

    def complete(self) -> None:
        """Let all gradients lie in their places, after the exchange."""
        for parameter in self._rows:
            parameter.complete()

    def drop(self) -> None:
        """Forget the products."""
        for parameter in self._rows:
            parameter.product = None

    def _send(self, piece: ArenaSlice) -> None:
        """Write this rank's rows to their place, and let the product be that of what comes back there."""
        parameter, mine = piece.parameter, piece.parameter.product
        ranks, rows = self._communicator.size, self._rows[parameter]
        place = self._net.arena.exchanged(piece).zero_()
        split = ranks * rows * parameter.shape[0]
        left, right = (part.view(ranks * rows, -1) for part in (place[:split], place[split:]))
        if mine is not None and len(mine.left) <= rows:
            first = self._communicator.rank * rows
            left[first : first + len(mine.left)] = mine.left
            right[first : first + len(mine.right)] = mine.right
            if not mine.is_surely_finite and not _is_finite(mine, parameter):
                place[0] = torch.nan
        elif mine is not None or (not parameter.fresh and bool(parameter.diff.any())):
            grown = f"the batch has more than the {rows} rows that it had at the start"
            why = grown if mine is not None else f"{grown}, or a hook added to it"
            self._net.layers[piece.layer].fail(
                f"rank {self._communicator.rank} cannot exchange the weight's gradient as a product: {why}",
                hint="comm_param { exchange_products: false } exchanges the gradient itself",
            )
        choices = self._net.context.choices
        parameter.product = ProductGradient(parameter.diff, left, right, choices, factor=ranks)


def _may_resize(layer: Layer) -> bool:
    """Return whether the number of a layer's rows may change from pass to pass."""
    return isinstance(layer, (Filter, Python)) or not type(layer).__module__.startswith(_OURS)


def _is_finite(product: KeptProduct, parameter: Parameter) -> bool:
    product.write(parameter.diff)
    return bool(torch.isfinite(parameter.diff).all())


def _candidates(net: Net, param: SolverParameter, updater: Updater) -> Iterator[tuple[Parameter, int]]:
    """Yield weights whose gradients nothing but the update needs, and how many rows their inner products have."""
    is_summed = param.iter_size > 1 or param.clip_gradients >= 0
    if net.device.type != "cpu" or net.keep_blobs or is_summed or not updater.takes_products:
        return
    for _, weight, rows in _inner_products(net):
        yield weight, rows


def _inner_products(net: Net) -> Iterator[tuple[str, Parameter, int]]:
    """Yield name, weight and number of rows of the inner products whose weights train and belong to no other layer."""
    uses = Counter(id(each.owner or each) for layer in net.layers for each in layer.parameters)
    for layer, bottoms in zip(net.layers, net.bottom_blobs, strict=True):
        # A class derived from it may look at the gradient.
        if type(layer) is InnerProduct and uses[id(layer.parameters[0])] == 1 and layer.parameters[0].lr_mult != 0:
            yield layer.name, layer.parameters[0], bottoms[0].count // max(1, layer.inputs)


def exchanged_as_products(net: Net, ranks: int) -> dict[str, tuple[int, int]]:
    """Return the layers whose gradients so many ranks may exchange as products, where nothing speaks against it.

    Returns:
        For each name how many values are exchanged then, and how many the gradient has.
    """
    return {
        name: (ranks * rows * sum(weight.shape), weight.count)
        for name, weight, rows in _inner_products(net)
        if suits_product(ranks * rows, weight.shape)
    }
