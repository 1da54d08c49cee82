"""One training step of a small click-through-rate net here and in plain PyTorch, side by side.

    python benchmarks/ctr.py                                       # all cases, one thread
    python benchmarks/ctr.py --rows 1000000 --batches 2048 --types AdaGrad --tables 26
    python benchmarks/ctr.py --write                               # put the table into benchmarks/results/ctr.md

The net: 13 dense features through a layer of 64 to 16; one bag of one id for each table, rows of 16; all of them
joined, and through a layer of 64 to one logit. PyTorch has nn.EmbeddingBag with sparse gradients, and torch.optim.SGD
or Adagrad, which makes the same updates. Ids are drawn by Zipf's law, generated.

Both sides are in one process and take turns, a step each, on the same batch, so that whatever else the machine does
hits both alike. Ours copies its batch into the net, ids as floats, within the time that counts. Reported are the median
times by the clock and of processor time (which other programs disturb less), each with the median over the rounds of
the ratio within a round (below 1: ours is faster). After the first steps both sides have to hold the same weights (but
for the row-wise AdaGrad, which PyTorch lacks and which is set beside its Adagrad).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch
from torch import nn

from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver

RESULTS = Path(__file__).resolve().parent / "results" / "ctr.md"
DENSE, LENGTH, HIDDEN, RATE = 13, 16, 64, 0.01
TYPES = {
    "SGD": 'type: "SGD"',
    "AdaGrad": 'type: "AdaGrad" delta: 1e-4',
    "AdaGrad, row-wise": 'type: "AdaGrad" delta: 1e-4 row_wise_adagrad: true',
}
_BATCHES_MADE = 16
_WARM_UP = 5


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    type: str
    tables: int
    rows: int
    batch: int


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Step = Callable[[Batch], None]


def batches_of(case: Case) -> list[Batch]:
    """Return batches of dense features, ids (tables x batch, int64) and labels."""
    generator = torch.Generator().manual_seed(7)
    made = []
    for _ in range(_BATCHES_MADE):
        # The rank of a draw from Zipf's law with exponent near 1 is nearly log-uniform.
        uniform = torch.rand((case.tables, case.batch), generator=generator, dtype=torch.float64)
        ids = (case.rows**uniform - 1).long().clamp_(0, case.rows - 1)
        dense = torch.rand((case.batch, DENSE), generator=generator)
        made.append((dense, ids, torch.randint(2, (case.batch, 1), generator=generator).float()))
    return made


def net_text(case: Case) -> str:
    """Return the net as prototxt."""

    def dense(name: str, bottom: str, outputs: int) -> str:
        fields = f'num_output: {outputs} weight_filler {{ type: "xavier" }}'
        return (
            f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"'
            f" inner_product_param {{ {fields} }} }}\n"
        )

    def relu(name: str) -> str:
        return f'layer {{ name: "relu_{name}" type: "ReLU" bottom: "{name}" top: "{name}" }}\n'

    ids = [f"ids{number}" for number in range(case.tables)]
    tops = " ".join(f'top: "{name}"' for name in ("dense", "label", *ids))
    shapes = " ".join(f"shape {{ dim: {case.batch} {size} }}" for size in (f"dim: {DENSE}", "dim: 1", *[""] * len(ids)))
    text = f'layer {{ name: "data" type: "Input" {tops} input_param {{ {shapes} }} }}\n'
    text += dense("b1", "dense", HIDDEN) + relu("b1") + dense("b2", "b1", LENGTH) + relu("b2")
    for number in range(case.tables):
        text += (
            f'layer {{ name: "bag{number}" type: "EmbeddingBag" bottom: "ids{number}" top: "bag{number}"'
            f" embedding_bag_param {{ input_dim: {case.rows} num_output: {LENGTH} }} }}\n"
        )
    bottoms = " ".join(f'bottom: "bag{number}"' for number in range(case.tables))
    text += f'layer {{ name: "join" type: "Concat" bottom: "b2" {bottoms} top: "join" }}\n'
    text += dense("t1", "join", HIDDEN) + relu("t1") + dense("t2", "t1", 1)
    return text + 'layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "t2" bottom: "label" top: "loss" }\n'


def our_side(case: Case) -> tuple[Solver, Step]:
    """Return the engine's solver on the net, and its step."""
    fields = f'base_lr: {RATE} lr_policy: "fixed" max_iter: 1000000 random_seed: 1 solver_mode: CPU {TYPES[case.type]}'
    source = parse_solver(fields, file="solver.prototxt")
    source.param.net_param.CopyFrom(parse_net(net_text(case)).param)
    source.param.snapshot_after_train = False
    solver = Solver(source.param)
    inputs = solver.net.layers[0].forward([])

    def step(batch: Batch) -> None:
        dense, ids, label = batch
        for blob, values in zip(inputs, (dense, label, *ids), strict=True):
            blob.copy_(values)
        solver.step(1)

    return solver, step


class TorchNet(nn.Module):
    """The same net, with the weights of ours."""

    def __init__(self, case: Case, solver: Solver) -> None:
        super().__init__()
        layers = {layer.name: layer for layer in solver.net.layers}
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(case.rows, LENGTH, mode="sum", sparse=True, _weight=layer.parameters[0].data.clone())
            for layer in solver.net.layers
            if layer.type == "EmbeddingBag"
        )
        self.dense = nn.ModuleList()
        for name in ("b1", "b2", "t1", "t2"):
            weight, bias = (parameter.data.clone() for parameter in layers[name].parameters)
            linear = nn.Linear(weight.shape[1], weight.shape[0])
            linear.weight.data, linear.bias.data = weight, bias
            self.dense.append(linear)

    def forward(self, dense: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        b1, b2, t1, t2 = self.dense
        x = torch.relu(b2(torch.relu(b1(dense))))
        offsets = torch.arange(len(dense))
        joined = torch.cat([x, *(bag(row, offsets) for bag, row in zip(self.bags, ids, strict=True))], 1)
        return t2(torch.relu(t1(joined)))


def torch_side(case: Case, solver: Solver) -> tuple[TorchNet, Step]:
    """Return the net in PyTorch, and its step."""
    net = TorchNet(case, solver)
    if case.type == "SGD":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    else:
        optimizer = torch.optim.Adagrad(net.parameters(), lr=RATE, eps=1e-4)

    def step(batch: Batch) -> None:
        dense, ids, label = batch
        optimizer.zero_grad()
        logits = net(dense, ids)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, label, reduction="sum") / len(label)
        loss.backward()
        optimizer.step()
        loss.item()

    return net, step


def largest_difference(solver: Solver, net: TorchNet) -> float:
    """Return the largest difference between both sides' weights, relative to the largest weight of the parameter."""
    layers = {layer.name: layer for layer in solver.net.layers}
    ours = [layer.parameters[0].data for layer in solver.net.layers if layer.type == "EmbeddingBag"]
    ours += [parameter.data for name in ("b1", "b2", "t1", "t2") for parameter in layers[name].parameters]
    pairs = zip(ours, (parameter.data for parameter in net.parameters()), strict=True)
    return max(float((mine - other).abs().max() / other.abs().max()) for mine, other in pairs)


def compare(case: Case, rounds: int) -> str:
    """Run both sides in turns and return a row of the table."""
    batches = batches_of(case)
    solver, our_step = our_side(case)
    net, torch_step = torch_side(case, solver)
    clock: dict[str, list[float]] = {"ours": [], "torch": []}
    cpu: dict[str, list[float]] = {"ours": [], "torch": []}
    for number in range(_WARM_UP + rounds):
        # Later a rounding difference at a ReLU may have grown.
        if number == _WARM_UP and "row-wise" not in case.type and (found := largest_difference(solver, net)) > 1e-4:
            raise SystemExit(f"{case}: the weights of both sides differ by {found:g}")
        batch = batches[number % len(batches)]
        sides = [("ours", our_step), ("torch", torch_step)]
        for name, step in sides if number % 2 else sides[::-1]:
            began, cpu_began = time.perf_counter(), time.process_time()
            step(batch)
            clock[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - cpu_began)
    solver.close()
    figures = " | ".join(_figures(sides) for sides in (clock, cpu))
    return f"| {case.type} | {case.tables} | {case.rows:,} | {case.batch} | {figures} |"


def _figures(sides: dict[str, list[float]]) -> str:
    """Return three cells: the median of each side in ms, and the median ratio within a round."""
    ours, other = (values[_WARM_UP:] for values in sides.values())
    ratio = statistics.median(one / another for one, another in zip(ours, other, strict=True))
    return f"{1e3 * statistics.median(ours):.3f} | {1e3 * statistics.median(other):.3f} | {ratio:.2f}"


def table(cases: Iterator[Case], rounds: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| type | tables | rows of each | batch | ours, ms | PyTorch | ratio | processor: ours | PyTorch | ratio |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for case in cases:
        yield compare(case, rounds)


def main() -> None:
    """Read the command line and run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--tables", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--rows", nargs="+", type=int, default=[10**5, 10**6])
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 2048])
    parser.add_argument("--rounds", type=int, default=100, help="counted steps a side")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"put the table into {RESULTS.name}")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    cases = (Case(*values) for values in product(options.types, options.tables, options.rows, options.batches))
    lines = []
    for line in table(cases, options.rounds):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        head, _, rest = RESULTS.read_text(encoding="utf-8").partition("| type |")
        tail = rest.partition("\n\n")[2]
        RESULTS.write_text(head + "\n".join(lines) + "\n" + (f"\n{tail}" if tail else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
