"""One training step of click-through-rate nets here and in plain PyTorch, side by side: time and peak memory.

    python benchmarks/ctr.py                                       # all cases, one thread
    python benchmarks/ctr.py --nets small --tables 26 --rows 1000000 --batches 2048 --types AdaGrad
    python benchmarks/ctr.py --write                               # put the tables into benchmarks/results/ctr.md

The nets (`ctr_nets.py`): `dlrm_kaggle`, DLRM's for Criteo's data (13-512-256-64-16, 26 tables, the products of all
pairs, 367-512-256-1), tables of as many rows as the features have values, but `--rows` at most; `dlrm`, the same with
`--rows` rows in each table; and `small`, in which there is little but the tables and the work for each layer. Every
table gives the row of one id; a row has 16 values. Ids are drawn by Zipf's law, generated.

Both sides are in one process and take turns, a step each, on the same batch, so that whatever else the machine does
hits both alike; batches lie in memory in the form that each side takes (ids in floats, or in int64). A step is forward,
backward and update; PyTorch has nn.EmbeddingBag with sparse gradients, and torch.optim.SGD or Adagrad, which make the
same updates. Reported are the median times by the clock and of processor time (which other programs disturb less), each
with the median over the rounds of the ratio within a round (below 1: ours is faster). Before that both sides make the
same steps in float64, and have to have the same losses and weights (but for the row-wise AdaGrad, which PyTorch lacks
and which is set beside its Adagrad).

Memory is measured in a process a side: the peak of resident memory, net and batches included, over what the process had
after its imports and the steps of a tiny net, freed memory given back. Pages of PyTorch's own files, of which more come
in as more operators are called, are left out.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path

import torch
from ctr_nets import DENSE, FORMS, TorchNet, net_text, weights_of
from step_worker import memory_kib, reset_peak
from torch import nn

from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver

RESULTS = Path(__file__).resolve().parent / "results" / "ctr.md"
# Exact in the float32 of a solver's fields.
RATE, DELTA = 2**-7, 2**-13
TYPES = {
    "SGD": 'type: "SGD"',
    "AdaGrad": f'type: "AdaGrad" delta: {DELTA}',
    "AdaGrad, row-wise": f'type: "AdaGrad" delta: {DELTA} row_wise_adagrad: true',
}
_BATCHES_MADE = 16
_WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    net: str
    type: str
    tables: int
    most_rows: int
    batch: int

    @property
    def rows(self) -> list[int]:
        """How many rows each table has."""
        return FORMS[self.net].rows(self.tables, self.most_rows)


@dataclass(frozen=True)
class Batch:
    """Dense features (batch x 13), labels (batch x 1), and for each table the ids, as both sides take them."""

    dense: torch.Tensor
    labels: torch.Tensor
    ids: list[torch.Tensor]
    float_ids: list[torch.Tensor]

    def double(self) -> Batch:
        """Return the same in float64."""
        return Batch(self.dense.double(), self.labels.double(), self.ids, [each.double() for each in self.float_ids])


Step = Callable[[Batch], float]


def batches_of(case: Case) -> list[Batch]:
    """Return batches with ids by Zipf's law."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for _ in range(_BATCHES_MADE):
        # The rank of a draw from Zipf's law with exponent near 1 is nearly log-uniform.
        uniform = torch.rand((case.tables, case.batch), generator=generator, dtype=torch.float64)
        rows = torch.tensor(case.rows, dtype=torch.float64)[:, None]
        ids = list((rows**uniform - 1).long().clamp_(min=0))
        dense = torch.rand((case.batch, DENSE), generator=generator)
        labels = torch.randint(2, (case.batch, 1), generator=generator).float()
        made.append(Batch(dense, labels, ids, [each.float()[:, None] for each in ids]))
    return made


def our_side(case: Case, dtype: torch.dtype = torch.float32) -> tuple[Solver, Step]:
    """Return the engine's solver on the net, and its step, which returns the loss."""
    fields = f'base_lr: {RATE} lr_policy: "fixed" max_iter: 1000000 random_seed: 1 solver_mode: CPU {TYPES[case.type]}'
    source = parse_solver(fields, file="solver.prototxt")
    source.param.net_param.CopyFrom(parse_net(net_text(FORMS[case.net], case.rows, case.batch)).param)
    source.param.snapshot_after_train = False
    solver = Solver(source.param, dtype=dtype)
    inputs = solver.net.layers[0]

    def step(batch: Batch) -> float:
        inputs.values = [batch.dense, batch.labels, *batch.float_ids]
        solver.step(1)
        return float(solver.net.blobs["loss"].data)

    return solver, step


def torch_side(case: Case, dtype: torch.dtype = torch.float32) -> tuple[TorchNet, Step]:
    """Return the net in PyTorch, and its step, which returns the loss."""
    net = TorchNet(FORMS[case.net], case.rows).to(dtype)
    optimizer: torch.optim.Optimizer
    if case.type == "SGD":
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    else:
        optimizer = torch.optim.Adagrad(net.parameters(), lr=RATE, eps=DELTA)
    loss_of = nn.BCEWithLogitsLoss()
    offsets = torch.arange(case.batch)

    def step(batch: Batch) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(net(batch.dense, batch.ids, offsets), batch.labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return net, step


def check_equal(case: Case, batches: list[Batch]) -> None:
    """End the program unless both sides have the same losses and weights in some steps in float64.

    In float32 a rounding difference at a ReLU can turn AdaGrad's first step for a weight around.
    """
    solver, our_step = our_side(case, torch.float64)
    net, torch_step = torch_side(case, torch.float64)
    net.take_weights(solver.net)
    for batch in batches[:_WARM_UP]:
        check_losses(case, our_step(batch.double()), torch_step(batch.double()), 1e-12)
    pairs = zip(weights_of(solver.net), (parameter.data for parameter in net.parameters()), strict=True)
    found = max(float((mine - other).abs().max() / other.abs().max()) for mine, other in pairs)
    if found > 1e-10:
        raise SystemExit(f"{case}: the weights of both sides differ by {found:g}")
    solver.close()


def check_losses(case: Case, mine: float, other: float, tolerance: float) -> None:
    """End the program where the losses are not the same to rounding."""
    if abs(mine - other) > tolerance * abs(other):
        raise SystemExit(f"{case}: the losses of both sides are {mine} and {other}")


def compare(case: Case, rounds: int) -> str:
    """Run both sides in turns and return a row of the table."""
    batches = batches_of(case)
    is_same_rule = case.type != "AdaGrad, row-wise"
    if is_same_rule:
        check_equal(case, batches)
    solver, our_step = our_side(case)
    net, torch_step = torch_side(case)
    net.take_weights(solver.net)
    clock: dict[str, list[float]] = {"ours": [], "torch": []}
    cpu: dict[str, list[float]] = {"ours": [], "torch": []}
    losses: dict[str, list[float]] = {"ours": [], "torch": []}
    for number in range(_WARM_UP + rounds):
        batch = batches[number % len(batches)]
        sides = [("ours", our_step), ("torch", torch_step)]
        for name, step in sides if number % 2 else sides[::-1]:
            began, cpu_began = time.perf_counter(), time.process_time()
            loss = step(batch)
            clock[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - cpu_began)
            losses[name].append(loss)
        if is_same_rule and number < _WARM_UP:
            check_losses(case, losses["ours"][-1], losses["torch"][-1], 1e-3)
    solver.close()
    figures = " | ".join(_figures(sides) for sides in (clock, cpu))
    return f"| {case.net} | {case.type} | {case.tables} | {case.most_rows:,} | {case.batch} | {figures} |"


def _figures(sides: dict[str, list[float]]) -> str:
    """Return three cells: the median of each side in ms, and the median ratio within a round."""
    ours, other = (values[_WARM_UP:] for values in sides.values())
    ratio = statistics.median(one / another for one, another in zip(ours, other, strict=True))
    return f"{1e3 * statistics.median(ours):.3f} | {1e3 * statistics.median(other):.3f} | {ratio:.2f}"


def times(cases: Sequence[Case], rounds: int) -> Iterator[str]:
    """Yield the lines of the table of times."""
    head = "net | type | tables | rows, at most | batch | ours, ms | PyTorch | ratio"
    yield f"| {head} | processor: ours | PyTorch | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for case in cases:
        yield compare(case, rounds)


def measure_memory(side: str, case: Case, threads: int) -> None:
    """Make some steps of one side and print its peak of resident memory in MiB."""
    torch.set_num_threads(threads)
    step_on(side, Case(case.net, case.type, 1, 10, 1))  # loads what PyTorch loads on first use
    ctypes.CDLL(None).malloc_trim(0)
    base, files = memory_kib("VmRSS"), memory_kib("RssFile")
    reset_peak()
    step_on(side, case)
    print((memory_kib("VmHWM") - base - (memory_kib("RssFile") - files)) / 1024)


def step_on(side: str, case: Case) -> None:
    """Make a net and some steps of one side."""
    step = our_side(case)[1] if side == "ours" else torch_side(case)[1]
    for batch in batches_of(case):
        step(batch)


def peaks(cases: Sequence[Case], threads: int) -> Iterator[str]:
    """Yield the lines of the table of memory."""
    yield "| net | type | tables | rows, at most | batch | ours, MiB | PyTorch | ratio |"
    yield "|---|---|---|---|---|---|---|---|"
    for case in cases:
        found = [
            float(
                subprocess.run(
                    [sys.executable, __file__, "--worker", str(threads), side, *map(str, astuple(case))],
                    check=True, stdout=subprocess.PIPE, text=True,
                ).stdout
            )
            for side in ("ours", "torch")
        ]  # fmt: skip
        ours, other = found
        figures = f"{ours:.0f} | {other:.0f} | {ours / other:.2f}"
        yield f"| {case.net} | {case.type} | {case.tables} | {case.most_rows:,} | {case.batch} | {figures} |"


def main() -> None:
    """Read the command line and run the comparison."""
    if sys.argv[1:2] == ["--worker"]:
        threads, side, net, kind, *sizes = sys.argv[2:]
        measure_memory(side, Case(net, kind, *map(int, sizes)), int(threads))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--tables", nargs="+", type=int, help="default: 26; of the small net 8")
    parser.add_argument("--rows", nargs="+", type=int, default=[10**5], help="of a table at most")
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 2048])
    parser.add_argument("--rounds", type=int, default=60, help="counted steps a side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"put the tables into {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tables = {net: options.tables or ([26] if FORMS[net].has_products else [8]) for net in options.nets}
    cases = [
        Case(net, *values)
        for net in options.nets
        for values in product(options.types, tables[net], options.rows, options.batches)
    ]
    results = []
    for lines in (times(cases, options.rounds), peaks(cases, options.threads)):
        found = []
        for line in lines:
            print(line, flush=True)
            found.append(line)
        results.append("\n".join(found))
        print()
    if options.write:
        parts = RESULTS.read_text(encoding="utf-8").split("\n\n")
        places = [index for index, part in enumerate(parts) if part.startswith("| net |")]
        for place, result in zip(places, results, strict=True):
            parts[place] = result
        RESULTS.write_text("\n\n".join(parts).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
