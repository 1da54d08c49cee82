"""What `Layer` promises the net, checked for every layer of the golden cases, and for those of the forks.

Whether a layer truly needs the values that it says it keeps, and no others; whether it writes only where it may;
whether memory formats change its results; whether its gradients are tensors that others may write into.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.net import TEST, TRAIN, Net
from mgcaffe.prototxt import read_net_source
from tests.support.fork_nets import FORK_NETS
from tests.support.golden import LAYERS, NAMES, read_case
from tests.support.netkit import make_net

pytestmark = pytest.mark.slow

Tensors = list[torch.Tensor]
Formatter = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class Pass:
    """What one pass computed."""

    tops: Tensors
    diffs: list[torch.Tensor | None]
    parameter_diffs: Tensors


@dataclass
class Example:
    """A layer of a golden case, with values for its bottoms."""

    node: Node
    net: Net
    bottoms: Tensors

    @property
    def layer(self) -> Layer:
        return self.node.layer

    def inputs(self, formatter: Formatter = torch.clone) -> Tensors:
        """Copies of the bottoms."""
        return [formatter(x) for x in self.bottoms]

    def top_diffs(self, tops: Tensors, formatter: Formatter = torch.clone) -> Tensors:
        generator = torch.Generator().manual_seed(5)
        return [formatter(torch.randn(top.shape, generator=generator, dtype=top.dtype)) for top in tops]

    def forward(self, bottoms: Tensors) -> Tensors:
        self.net.reseed(3)
        self.layer.reshape([tuple(x.shape) for x in bottoms])
        return self.layer.forward(bottoms)

    def backward(self, top_diffs: Tensors) -> tuple[list[torch.Tensor | None], Tensors]:
        for parameter in self.layer.parameters:
            parameter.clear_diff()
        diffs = self.layer.backward(top_diffs, self.node.wants)
        return diffs, [parameter.diff.clone() for parameter in self.layer.parameters]

    def run(self, formatter: Formatter = torch.clone) -> Pass:
        """A pass in which nothing may be overwritten."""
        self.layer.may_overwrite_bottom = False
        tops = self.forward(self.inputs(formatter))
        self.layer.may_overwrite_top_diff = [False] * len(tops)
        kept = [top.clone() for top in tops]
        return Pass(kept, *self.backward(self.top_diffs(tops, formatter)))


@functools.cache
def _examples() -> dict[str, Example]:
    examples: dict[str, Example] = {}
    for case in NAMES:
        source = read_net_source(LAYERS / case / "net.prototxt")
        golden, meta = read_case(case)
        phase = TRAIN if meta["phase"] == "train" else TEST
        net = Net(source.param, phase=phase, dtype=torch.float64, seed=1)
        for key, values in golden.items():
            if key.startswith("in/"):
                net.blobs[key[3:]].data.copy_(torch.from_numpy(values))
        for node in net.nodes:
            bottoms = [blob.data.clone() for blob in node.bottoms]
            net.forward(node.index, node.index + 1)
            if bottoms:
                examples[f"{case}-{node.layer.name}"] = Example(node, net, bottoms)
    for name, text in FORK_NETS.items():
        net = make_net(f"force_backward: true {text}")
        for blob in net.inputs:
            net.blobs[blob].data.normal_(generator=torch.Generator().manual_seed(1))
        net.forward()
        node = net.nodes[-1]
        examples[name] = Example(node, net, [blob.data.clone() for blob in node.bottoms])
    return examples


EVERY = sorted(_examples())
LEARNING = [name for name in EVERY if _examples()[name].node.needs_backward]


def assert_same(found: Pass, expected: Pass) -> None:
    for kind in ("tops", "diffs", "parameter_diffs"):
        for index, (one, other) in enumerate(zip(getattr(found, kind), getattr(expected, kind), strict=True)):
            assert (one is None) == (other is None), f"{kind}[{index}]"
            if one is not None:
                message = functools.partial("{}[{}]: {}".format, kind, index)
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, msg=message)


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.channels_last) if x.dim() == 4 else x.clone()


def narrowed(x: torch.Tensor) -> torch.Tensor:
    """The same values as a part of a larger tensor."""
    if not x.dim():
        return x.clone()
    wider = x.new_full((*x.shape[:-1], x.shape[-1] + 2), float("nan"))
    wider[..., 1:-1] = x
    return wider[..., 1:-1]


def tensors_in(saved: object) -> Iterator[torch.Tensor]:
    """All tensors in what a layer saved."""
    if isinstance(saved, torch.Tensor):
        yield saved
    elif isinstance(saved, (list, tuple)):
        for part in saved:
            yield from tensors_in(part)


@pytest.mark.parametrize("formatter", [channels_last, narrowed])
@pytest.mark.parametrize("name", LEARNING)
def test_memory_formats_change_no_result(name, formatter):
    example = _examples()[name]
    assert_same(example.run(formatter), example.run())


@pytest.mark.parametrize("name", LEARNING)
def test_backward_reads_no_value_that_the_layer_says_it_does_not_keep(name):
    example = _examples()[name]
    expected, layer = example.run(), example.layer
    bottoms = example.inputs()
    tops = example.forward(bottoms)
    top_diffs = example.top_diffs(tops)
    shares = layer.tops_share_bottoms
    kept = [top.clone() for top in tops]
    if not layer.keeps_bottoms and not (shares and layer.keeps_tops):
        for x in bottoms:
            x.fill_(float("nan"))
    if not layer.keeps_tops and not (shares and layer.keeps_bottoms) and layer.type != "Parameter":
        for top in tops:
            top.fill_(float("nan"))
    assert_same(Pass(kept, *example.backward(top_diffs)), expected)


@pytest.mark.parametrize("name", LEARNING)
def test_backward_may_write_over_top_gradients_but_need_not(name):
    example = _examples()[name]
    expected = example.run()
    tops = [top.clone() for top in example.forward(example.inputs())]
    example.layer.may_overwrite_top_diff = [True] * len(tops)
    assert_same(Pass(tops, *example.backward(example.top_diffs(tops))), expected)


@pytest.mark.parametrize("name", [name for name in LEARNING if _examples()[name].layer.in_place])
def test_working_in_place_changes_no_result(name):
    example = _examples()[name]
    expected = example.run()
    example.layer.may_overwrite_bottom = True
    tops = example.forward(example.inputs())
    kept = [top.clone() for top in tops]
    assert_same(Pass(kept, *example.backward(example.top_diffs(tops))), expected)


@pytest.mark.parametrize("name", LEARNING)
def test_nothing_is_overwritten_without_leave(name):
    example = _examples()[name]
    example.layer.may_overwrite_bottom = False
    bottoms = example.inputs()
    tops = example.forward(bottoms)
    example.layer.may_overwrite_top_diff = [False] * len(tops)
    top_diffs = example.top_diffs(tops)
    before = [x.clone() for x in [*tops, *top_diffs]]
    example.backward(top_diffs)
    for x, kept in zip([*bottoms, *tops, *top_diffs], [*example.bottoms, *before], strict=True):
        assert torch.equal(x, kept)


@pytest.mark.parametrize("name", LEARNING)
def test_a_gradient_has_memory_for_every_value(name):
    for diff in _examples()[name].run().diffs:
        if diff is not None:
            assert all(stride or size == 1 for stride, size in zip(diff.stride(), diff.shape, strict=True))


@pytest.mark.parametrize("name", LEARNING)
def test_a_second_backward_pass_adds_to_the_parameters_and_replaces_the_rest(name):
    example = _examples()[name]
    first = example.run()
    tops = example.forward(example.inputs())
    example.layer.may_overwrite_top_diff = [False] * len(tops)
    example.backward(example.top_diffs(tops))
    diffs = example.layer.backward(example.top_diffs(tops), example.node.wants)
    doubled = [parameter.diff.clone() / 2 for parameter in example.layer.parameters]
    assert_same(Pass(first.tops, diffs, doubled), first)


@pytest.mark.parametrize("name", EVERY)
def test_without_backward_nothing_of_a_blobs_size_is_kept(name):
    example = _examples()[name]
    layer, follows = example.layer, example.layer.backward_follows
    try:
        layer.release()
        layer.backward_follows = False
        tops = example.forward(example.inputs())
        assert all(x.numel() < example.bottoms[0].numel() for x in tensors_in(layer.saved))
    finally:
        layer.backward_follows = follows
    assert [tuple(top.shape) for top in tops] == [blob.shape for blob in example.node.tops]
