import math

import pytest
import torch

from mgcaffe.engine import fillers
from mgcaffe.errors import NetError
from mgcaffe.prototxt import FillerParameter, parse_text
from tests.support.netkit import inputs, make_net

TYPES = ("constant", "uniform", "gaussian", "positive_unitball", "xavier", "msra")
SHAPES = ((4000,), (50, 80), (10, 20, 4, 5), (2, 20, 4, 5, 5))


def filled(text: str, shape: tuple[int, ...], seed: int = 1701, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    values = torch.full(shape, float("nan"), dtype=dtype)
    fillers.fill(values, parse_text(text, FillerParameter), torch.Generator().manual_seed(seed))
    return values


def assert_mean_and_deviation(values: torch.Tensor, mean: float, deviation: float) -> None:
    """Within five standard errors of a sample as large as `values`."""
    error = 5 * deviation / math.sqrt(values.numel())
    assert float(values.mean()) == pytest.approx(mean, abs=error)
    assert float(values.std()) == pytest.approx(deviation, abs=error)


@pytest.mark.parametrize("shape", [*SHAPES, (), (0,), (3, 0)])
def test_no_filler_means_zeros(shape):
    values = torch.full(shape, float("nan"))
    fillers.fill(values, None, torch.Generator())
    assert torch.equal(values, torch.zeros(shape))


@pytest.mark.parametrize("shape", [*SHAPES, ()])
def test_constant_is_the_default_and_its_value_is_zero(shape):
    assert torch.equal(filled("", shape), torch.zeros(shape, dtype=torch.float64))
    assert torch.equal(filled("value: 2.5", shape), torch.full(shape, 2.5, dtype=torch.float64))


@pytest.mark.parametrize("shape", SHAPES)
def test_uniform_covers_its_interval(shape):
    values = filled('type: "uniform" min: -3 max: 1', shape)
    assert -3 <= values.min() < -2.9
    assert 0.9 < values.max() <= 1
    assert_mean_and_deviation(values, -1, 4 / math.sqrt(12))


def test_uniform_is_from_zero_to_one_by_default():
    values = filled('type: "uniform"', (4000,))
    assert 0 <= values.min() < 0.01
    assert 0.99 < values.max() <= 1


@pytest.mark.parametrize("shape", SHAPES)
def test_gaussian_has_its_mean_and_deviation(shape):
    assert_mean_and_deviation(filled('type: "gaussian" mean: 2 std: 0.5', shape), 2, 0.5)
    assert_mean_and_deviation(filled('type: "gaussian"', shape), 0, 1)


def test_sparse_gaussian_keeps_that_many_inputs_an_output_on_average():
    values = filled('type: "gaussian" mean: 5 std: 0.1 sparse: 10', (50, 80))
    kept = values != 0
    share = 10 / 50
    assert float(kept.double().mean()) == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 4000))
    assert_mean_and_deviation(values[kept], 5, 0.1)


def test_sparse_zero_drops_everything_and_sparse_all_nothing():
    assert not filled('type: "gaussian" sparse: 0', (5, 8)).any()
    assert filled('type: "gaussian" sparse: 5', (5, 8)).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_positive_unitball_rows_are_positive_and_sum_to_one(shape):
    values = filled('type: "positive_unitball"', shape)
    assert values.min() >= 0
    torch.testing.assert_close(values.reshape(shape[0], -1).sum(1), torch.ones(shape[0], dtype=torch.float64))


NORMS = {"FAN_IN": 20 * 3 * 3, "FAN_OUT": 30 * 3 * 3, "AVERAGE": (20 + 30) * 3 * 3 / 2}


@pytest.mark.parametrize("norm", NORMS)
def test_xavier_is_uniform_with_the_bound_of_its_fan(norm):
    values = filled(f'type: "xavier" variance_norm: {norm}', (30, 20, 3, 3))
    bound = math.sqrt(3 / NORMS[norm])
    assert 0.99 * bound < values.abs().max() <= bound
    assert_mean_and_deviation(values, 0, math.sqrt(1 / NORMS[norm]))


@pytest.mark.parametrize("norm", NORMS)
def test_msra_is_normal_with_the_deviation_of_its_fan(norm):
    values = filled(f'type: "msra" variance_norm: {norm}', (30, 20, 3, 3))
    assert_mean_and_deviation(values, 0, math.sqrt(2 / NORMS[norm]))
    assert values.abs().max() > 3 * math.sqrt(2 / NORMS[norm])


@pytest.mark.parametrize(
    ("shape", "fan_in", "fan_out"),
    [((7,), 1, 7), ((7, 5), 5, 7), ((7, 5, 2, 3), 30, 42), ((7, 5, 2, 3, 2), 60, 84), ((), 1, 1)],
)
def test_fan_counts_the_values_an_output_or_an_input_touches(shape, fan_in, fan_out):
    assert fillers.fan(shape, fillers.FAN_IN) == fan_in
    assert fillers.fan(shape, fillers.FAN_OUT) == fan_out
    assert fillers.fan(shape, fillers.AVERAGE) == (fan_in + fan_out) / 2


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("type_name", "gain"), [("xavier", 1), ("msra", 2)])
def test_the_variance_of_any_shape_is_that_of_its_fan(type_name, gain, shape):
    values = filled(f'type: "{type_name}"', shape)
    assert_mean_and_deviation(values, 0, math.sqrt(gain / (math.prod(shape) / shape[0])))


@pytest.mark.parametrize("type_name", ["xavier", "msra"])
@pytest.mark.parametrize("shape", SHAPES)
def test_fan_in_is_the_default(type_name, shape):
    assert torch.equal(
        filled(f'type: "{type_name}"', shape), filled(f'type: "{type_name}" variance_norm: FAN_IN', shape)
    )


@pytest.mark.parametrize(
    ("kernel", "line"),
    [(4, [0.25, 0.75, 0.75, 0.25]), (3, [0.5, 1.0, 0.5]), (1, [1.0]), (5, [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3])],
)
def test_bilinear_is_the_tent_for_every_pair_of_channels(kernel, line):
    values = filled('type: "bilinear"', (2, 3, kernel, kernel))
    tent = torch.tensor(line, dtype=torch.float64)
    torch.testing.assert_close(values, torch.outer(tent, tent).expand(2, 3, kernel, kernel))


def test_bilinear_deconvolution_enlarges_a_ramp_to_a_ramp():
    net = make_net(
        inputs(x=(1, 1, 1, 6)) + 'layer { name: "up" type: "Deconvolution" bottom: "x" top: "y" convolution_param {'
        ' num_output: 1 kernel_size: 4 stride: 2 pad: 1 bias_term: false weight_filler { type: "bilinear" } } }'
    )
    net.blobs["x"].data.copy_(torch.arange(6.0).view(1, 1, 1, 6))
    net.forward()
    steps = net.blobs["y"].data[0, 0, 0].diff()[1:-1]
    torch.testing.assert_close(steps, torch.full_like(steps, float(steps[0])))


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_seed_gives_the_same_values(type_name, dtype):
    first = filled(f'type: "{type_name}"', (6, 5, 3, 3), seed=4, dtype=dtype)
    assert first.dtype == dtype
    assert torch.equal(first, filled(f'type: "{type_name}"', (6, 5, 3, 3), seed=4, dtype=dtype))
    if type_name != "constant":
        assert not torch.equal(first, filled(f'type: "{type_name}"', (6, 5, 3, 3), seed=5, dtype=dtype))


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_a_blob_without_values_can_be_filled(type_name, shape):
    assert filled(f'type: "{type_name}"', shape).numel() == 0


@pytest.mark.parametrize("type_name", [one for one in TYPES if one != "gaussian"] + ["bilinear"])
def test_only_gaussian_can_be_sparse(type_name):
    with pytest.raises(NetError, match=f"'{type_name}' cannot be sparse"):
        filled(f'type: "{type_name}" sparse: 2', (3, 3, 2, 2))


def test_more_inputs_than_outputs_cannot_be_kept():
    with pytest.raises(NetError, match="sparse 4 is more than the 3 outputs"):
        filled('type: "gaussian" sparse: 4', (3, 8))


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4), (1, 1, 3, 4)])
def test_bilinear_needs_a_square_kernel(shape):
    with pytest.raises(NetError, match="square kernel"):
        filled('type: "bilinear"', shape)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('type: "gaussian" std: -1', "std has to be 0 or more, not -1"),
        ('type: "gaussian" sparse: -2', "sparse has to be -1"),
        ('type: "uniform" min: 2 max: 1', "min 2 is more than max 1"),
        ('type: "xavier" scale: 2', "scale is a field of another Caffe"),
    ],
)
def test_a_field_that_cannot_be_honoured_is_refused(text, message):
    with pytest.raises(NetError, match=message):
        filled(text, (3, 3))


def test_an_unknown_type_names_the_nearest_and_all():
    with pytest.raises(NetError, match=r"unknown filler type 'xaver'\. Did you mean 'xavier'") as caught:
        filled('type: "xaver"', (2, 2))
    assert all(name in str(caught.value) for name in TYPES)


def test_a_net_names_the_layer_whose_filler_is_wrong():
    with pytest.raises(NetError, match=r"unknown filler type 'gaussain'.*layer 'ip'"):
        make_net(
            inputs(x=(1, 2)) + 'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {'
            ' num_output: 2 weight_filler { type: "gaussain" } } }'
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "text",
    [
        'type: "uniform" min: -1 max: 2',
        'type: "gaussian" mean: 1 std: 2',
        'type: "gaussian" std: 2 sparse: 3',
        'type: "constant" value: 3',
        'type: "positive_unitball"',
        'type: "xavier"',
        'type: "msra" variance_norm: AVERAGE',
    ],
)
@pytest.mark.parametrize("shape", [(203, 5), (18, 5), (203, 1), (16, 1), (3, 4), (97, 16)])
def test_rows_have_the_values_of_the_whole(monkeypatch, shape, text, dtype):
    monkeypatch.setattr(fillers, "_PIECE", 64)
    filler = parse_text(text, FillerParameter)
    whole, generator = torch.empty(shape, dtype=dtype), torch.Generator().manual_seed(5)
    fillers.fill(whole, filler, generator)
    after = torch.rand(3, generator=generator)
    for rows in (range(shape[0]), range(shape[0] // 3, shape[0] // 2), range(0)):
        part = torch.empty((len(rows), shape[1]), dtype=dtype)
        generator = torch.Generator().manual_seed(5)
        fillers.fill_rows(part, rows, shape, filler, generator)
        assert torch.equal(part, whole[rows.start : rows.stop])
        assert torch.equal(torch.rand(3, generator=generator), after) or "constant" in text


def test_rows_without_a_filler_are_zeros():
    values = torch.ones(2, 3)
    fillers.fill_rows(values, range(4, 6), (9, 3), None, torch.Generator())
    assert not values.any()
