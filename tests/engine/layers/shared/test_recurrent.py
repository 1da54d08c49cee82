"""LSTM and RNN: values, gradients, the state that goes on, and what they refuse."""

import logging
from dataclasses import replace

import pytest
import torch

from mgcaffe.engine.kernels import onednn_lstm
from mgcaffe.errors import NetError
from tests.support.autograd import check_against_autograd
from tests.support.layerkit import check_gradients, forward_backward, make_layer
from tests.support.layouts import random_input
from tests.support.netkit import inputs, make_net
from tests.support.recurrentkit import FILLERS, HIDDEN, data, plain, recurrent

pytestmark = pytest.mark.slow

KINDS = ["LSTM", "RNN"]


@pytest.mark.parametrize(
    ("kind", "static", "shapes"),
    [
        ("LSTM", None, [(28, 12), (28,), (28, 7)]),
        ("LSTM", (3, 2, 5), [(28, 12), (28,), (28, 10), (28, 7)]),
        ("RNN", None, [(7, 12), (7,), (7, 7), (7, 7), (7,)]),
        ("RNN", (3, 5), [(7, 12), (7,), (7, 5), (7, 7), (7, 7), (7,)]),
    ],
)
def test_parameters_stand_in_caffes_order(kind, static, shapes):
    layer, tops = recurrent(kind, (5, 3, 3, 4), static=static, hidden=7)
    assert tops == [(5, 3, 7)]
    assert [parameter.shape for parameter in layer.parameters] == shapes
    assert all(parameter.filler.type == "uniform" for parameter in layer.parameters)


def test_exposed_states_are_further_tops():
    assert recurrent("LSTM", (5, 3, 2), exposed=True)[1] == [(5, 3, 3), (1, 3, 3), (1, 3, 3)]
    assert recurrent("RNN", (5, 3, 2), exposed=True)[1] == [(5, 3, 3), (1, 3, 3)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cont", ["ones", "zeros", "mixed", "fractions"])
@pytest.mark.parametrize(
    ("x", "static", "exposed"),
    [
        ((4, 3, 2), None, False),
        ((4, 3, 2), (3, 5), False),
        ((4, 3, 2), None, True),
        ((2, 3, 2, 2), (3, 2, 2), True),
        ((1, 1, 1), None, False),
        ((9, 2, 4), None, False),
    ],
)
def test_values_and_gradients_agree_with_automatic_differentiation(kind, cont, x, static, exposed):
    layer, _ = recurrent(kind, x, static=static, exposed=exposed)
    bottoms = data(x, static=static, exposed=HIDDEN[kind] * exposed, cont=cont)
    check_against_autograd(layer, bottoms, plain(kind, static=bool(static)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cont", ["zeros", "mixed"])
@pytest.mark.parametrize("static", [None, (2, 2)])
def test_gradients_agree_with_differences(kind, cont, static):
    layer, _ = recurrent(kind, (3, 2, 2), static=static, hidden=2)
    bottoms = data((3, 2, 2), static=static, cont=cont)
    bottoms[1][0] = 0  # what the pass before left must not differ from one evaluation to the next
    assert layer.wants_bottom == [True, False, True][: len(bottoms)]
    check_gradients(layer, bottoms)


def test_one_sequence_is_what_torch_computes():
    steps, streams, size, hidden = 6, 3, 4, 5
    layer, _ = recurrent("LSTM", (steps, streams, size), hidden=hidden)
    module = torch.nn.LSTM(size, hidden).double()
    # Caffe's gates stand in the order i, f, o, g and torch's in the order i, f, g, o; Caffe has one bias.
    order = [0, 1, 3, 2]
    ours = [parameter.data.view(4, hidden, -1)[order].flatten(0, 1) for parameter in layer.parameters]
    with torch.no_grad():
        module.weight_ih_l0.copy_(ours[0])
        module.bias_ih_l0.copy_(ours[1].flatten())
        module.weight_hh_l0.copy_(ours[2])
        module.bias_hh_l0.zero_()
    x, cont = data((steps, streams, size), cont="ones")
    leaf = x.clone().requires_grad_()
    expected, _ = module(leaf)
    dy = random_input((steps, streams, hidden))
    expected.backward(dy)
    (y,), (dx, _) = forward_backward(layer, [x, cont], [dy])
    torch.testing.assert_close(y, expected.detach())
    torch.testing.assert_close(dx, leaf.grad)
    gradient = layer.parameters[2].diff.view(4, hidden, hidden)[order].flatten(0, 1)
    torch.testing.assert_close(gradient, module.weight_hh_l0.grad)


@pytest.mark.parametrize("kind", KINDS)
def test_large_weights_in_float32_agree_with_float64(kind):
    results = []
    for dtype in (torch.float32, torch.float64):
        layer, _ = recurrent(kind, (3, 5, 40), hidden=1100, dtype=dtype)
        for index, parameter in enumerate(layer.parameters):
            parameter.data.copy_(random_input(parameter.shape, seed=index) * 0.03)
        bottoms = [values.to(dtype) for values in data((3, 5, 40))]
        tops, diffs = forward_backward(layer, bottoms, [random_input((3, 5, 1100)).to(dtype)])
        results.append([*tops, diffs[0], *(parameter.diff for parameter in layer.parameters)])
    for single, double in zip(*results, strict=True):
        torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-5 * float(double.abs().max()))


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("x", [(5, 3, 4), (1, 1, 2, 3)])
def test_all_steps_of_an_lstm_at_once_agree_with_single_steps(x, exposed):
    """In float32 without sequences that begin; in float64 steps are single."""
    at_once, in_steps = (recurrent("LSTM", x, exposed=exposed, hidden=6)[0] for _ in range(2))
    bottoms = data(x, exposed=2 * exposed, hidden=6, cont="ones")
    for parameter, double in zip(at_once.parameters, in_steps.parameters, strict=True):
        parameter.data, parameter.diff = double.data.float(), double.diff.float()
    at_once.context = replace(at_once.context, dtype=torch.float32)
    diffs = [random_input((*x[:2], 6))] + [torch.zeros(1, x[1], 6, dtype=torch.float64)] * (2 * exposed)
    for number in range(3):  # the third adds to gradients that are there, and the state goes on
        results = []
        for layer, dtype in ((at_once, torch.float32), (in_steps, torch.float64)):
            for parameter in layer.parameters:
                parameter.fresh = number < 2
            given = [values.to(dtype) for values in bottoms]
            given[1][0] = number > 0
            tops = layer.forward(given)
            assert (layer is at_once) == isinstance(layer.saved[-1], onednn_lstm.Run)
            gradients = layer.backward([diff.to(dtype) for diff in diffs], layer.wants_bottom)
            results.append([*tops, gradients[0], *layer.state(), *(each.diff for each in layer.parameters)])
        for single, double in zip(*results, strict=True):
            torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6 * float(double.abs().max()))


@pytest.mark.parametrize("step", [0, 2])
def test_one_fraction_among_an_lstms_indicators_has_caffes_gradient(step):
    """In float32 oneDNN's layer, which knows no indicators, serves passes without; the first step is no exception."""
    layer, _ = recurrent("LSTM", exposed=True)
    bottoms = data(exposed=2, cont="ones")
    bottoms[1][step, 1] = 0.5
    check_against_autograd(layer, bottoms, plain("LSTM"))
    for parameter in layer.parameters:
        parameter.data = parameter.data.float()
    layer.context = replace(layer.context, dtype=torch.float32)
    layer.forward([values.float() for values in bottoms])
    assert not isinstance(layer.saved[-1], onednn_lstm.Run)


@pytest.mark.parametrize("why", ["a sequence begins", "a static input", "debug_info", "large weights"])
def test_steps_of_an_lstm_are_single_where_they_have_to_be(why, caplog):
    hidden, fields = (700 if why == "large weights" else 3), ("debug_info: true" if why == "debug_info" else "")
    static = (3, 5) if why == "a static input" else None
    layer, _ = recurrent("LSTM", static=static, hidden=hidden, fields=fields, dtype=torch.float32)
    bottoms = [values.float() for values in data(static=static, cont="ones")]
    if why == "a sequence begins":
        bottoms[1][2, 1] = 0
    layer.forward(bottoms)
    assert not isinstance(layer.saved[-1], onednn_lstm.Run)


# -- the state that goes on ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sequence_in_two_batches_has_the_values_of_one_batch(kind):
    x, cont = data((6, 3, 2))
    (whole,) = recurrent(kind, (6, 3, 2))[0].forward([x, cont])
    layer, _ = recurrent(kind, (2, 3, 2))
    parts = [layer.forward([x[at : at + 2], cont[at : at + 2]])[0] for at in (0, 2, 4)]
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_indicators_of_zero_forget_what_came_before(kind):
    layer, _ = recurrent(kind)
    x, cont = data()
    cont[0] = 0
    first = layer.forward([x, cont])[0].clone()
    again = layer.forward([x, cont])[0]
    assert torch.equal(first, again)
    cont[0, 1] = 1
    differs = (layer.forward([x, cont])[0][0] != first[0]).any(1)
    assert differs.tolist() == [False, True, False]


@pytest.mark.parametrize("kind", KINDS)
def test_no_gradient_flows_into_the_batch_before(kind):
    layer, _ = recurrent(kind)
    before, now = data(cont="ones"), data(cont="ones", seed=6)
    layer.forward(before)
    state = [part.clone() for part in layer.state()]
    check_against_autograd(layer, now, plain(kind, state=state))


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_pass_and_one_after_a_reset_begin_with_zeros(kind):
    layer, _ = recurrent(kind)
    bottoms = data(cont="ones")
    assert not any(part.any() for part in layer.state())
    first = layer.forward(bottoms)[0].clone()
    assert not torch.equal(layer.forward(bottoms)[0], first)
    layer.reset_state()
    assert torch.equal(layer.forward(bottoms)[0], first)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_can_be_taken_out_and_put_back(kind):
    layer, _ = recurrent(kind)
    bottoms = data(cont="ones")
    layer.forward(bottoms)
    state = [part.clone() for part in layer.state()]
    assert [tuple(part.shape) for part in state] == [(3, 3)] * HIDDEN[kind]
    expected = layer.forward(bottoms)[0].clone()
    other, _ = recurrent(kind)
    assert other.set_state(state)
    assert torch.equal(other.forward(bottoms)[0], expected)
    assert not other.set_state([part[:2] for part in state])
    assert not other.set_state([])


@pytest.mark.parametrize("kind", KINDS)
def test_writing_over_the_tops_leaves_the_state_alone(kind):
    layer, _ = recurrent(kind)
    (y,) = layer.forward(data(cont="ones"))
    state = [part.clone() for part in layer.state()]
    y.fill_(7)
    assert all(torch.equal(*pair) for pair in zip(layer.state(), state, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_exposed_state_is_not_carried_on(kind):
    layer, _ = recurrent(kind, exposed=True)
    bottoms = data(exposed=HIDDEN[kind])
    first = [top.clone() for top in layer.forward(bottoms)]
    again = layer.forward(bottoms)
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    assert not layer.carries_state


@pytest.mark.parametrize("kind", KINDS)
def test_exposed_states_handed_on_make_one_sequence_of_two(kind):
    x, cont = data((6, 3, 2), cont="ones")
    states = data((6, 3, 2), exposed=HIDDEN[kind])[2:]
    whole = recurrent(kind, (6, 3, 2), exposed=True)[0].forward([x, cont, *states])
    layer, _ = recurrent(kind, (3, 3, 2), exposed=True)
    first = layer.forward([x[:3], cont[:3], *states])
    second = layer.forward([x[3:], cont[3:], *first[1:]])
    torch.testing.assert_close(torch.cat([first[0], second[0]]), whole[0])
    for part, expected in zip(second[1:], whole[1:], strict=True):
        torch.testing.assert_close(part, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_said_where_no_gradient_would_flow_through_the_exposed_states(kind, caplog):
    layer, shapes = recurrent(kind, exposed=True)
    layer.wants_bottom = [True] + [False] * (1 + HIDDEN[kind])
    diffs = [torch.full(shape, float(not number), dtype=torch.float64) for number, shape in enumerate(shapes)]
    with caplog.at_level(logging.WARNING, logger="mgcaffe.engine"):
        _, (dx, *others) = forward_backward(layer, data(exposed=HIDDEN[kind]), diffs)
    assert dx.any() and others == [None] * (1 + HIDDEN[kind])
    assert not caplog.records


@pytest.mark.parametrize("kind", KINDS)
def test_exposed_states_get_gradients_of_zero_and_say_so_once(kind, caplog):
    layer, _ = recurrent(kind, exposed=True)
    bottoms = data(exposed=HIDDEN[kind])
    diffs = [random_input(tuple(top.shape)) for top in layer.forward(bottoms)]
    with caplog.at_level(logging.WARNING, logger="mgcaffe.engine"):
        _, first = forward_backward(layer, bottoms, diffs)
        _, second = forward_backward(layer, bottoms, [diffs[0], *map(torch.zeros_like, diffs[1:])])
    assert all(not diff.any() for diff in first[2:])
    assert torch.equal(first[0], second[0])
    assert [record.getMessage() for record in caplog.records] == [
        "layer 'r': no gradient flows through the exposed hidden state, as in Caffe"
    ]


# -- other batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_any_number_of_steps_follow_each_other(kind):
    x, cont = data((7, 3, 2))
    (whole,) = recurrent(kind, (7, 3, 2))[0].forward([x, cont])
    layer, _ = recurrent(kind, (2, 3, 2))
    parts = []
    for begin, end in ((0, 2), (2, 2), (2, 7)):
        shapes = [(end - begin, 3, 2), (end - begin, 3)]
        assert layer.reshape(shapes) == [(end - begin, 3, 3)]
        parts += layer.forward([x[begin:end], cont[begin:end]])
    torch.testing.assert_close(torch.cat(parts), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_stay_go_on_and_new_ones_begin_with_zeros(kind):
    layer, _ = recurrent(kind, (2, 2, 2))
    layer.forward(data((2, 2, 2), cont="ones"))
    before = [part.clone() for part in layer.state()]
    layer.reshape([(2, 3, 2), (2, 3)])
    grown = layer.state()
    assert all(torch.equal(part[:2], old) and not part[2:].any() for part, old in zip(grown, before, strict=True))
    layer.reshape([(2, 1, 2), (2, 1)])
    assert all(torch.equal(part, old[:1]) for part, old in zip(layer.state(), before, strict=True))
    assert layer.forward(data((2, 1, 2)))[0].shape == (2, 1, 3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(0, 3, 2), (4, 0, 2)])
def test_batches_of_nothing_give_nothing(kind, shape):
    layer, (top,) = recurrent(kind, shape, static=(shape[1], 2))
    bottoms = data(shape, static=(shape[1], 2))
    (y,), diffs = forward_backward(layer, bottoms, [torch.zeros(top, dtype=torch.float64)])
    assert y.shape == top and diffs[0].shape == shape
    assert not any(parameter.diff.any() for parameter in layer.parameters)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["channels_last", "narrowed"])
def test_the_layout_of_the_bottom_does_not_matter(kind, layout):
    shape = (4, 3, 2, 2)
    layer, _ = recurrent(kind, shape)
    bottoms = [random_input(shape, layout), data(shape)[1]]
    check_against_autograd(layer, bottoms, plain(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_that_nobody_wants_are_not_computed(kind):
    frozen = " ".join(["param { lr_mult: 0 }"] * 4)
    layer, _ = recurrent(kind, static=(3, 2), layer_fields=frozen)
    layer.wants_bottom = [False, False, False]
    bottoms = data(static=(3, 2))
    _, diffs = forward_backward(layer, bottoms, [random_input((4, 3, 3))])
    assert diffs == [None, None, None]
    assert [parameter.fresh for parameter in layer.parameters] == [True] * 4 + [False] * (len(layer.parameters) - 4)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_backward_pass_nothing_but_the_state_is_kept(kind):
    layer, _ = recurrent(kind)
    layer.backward_follows = False
    layer.forward(data())
    assert layer.saved is None
    assert all(part.untyped_storage().nbytes() == 3 * 3 * 8 for part in layer.state())


# -- in a net --------------------------------------------------------------------------------------------


def net_of(kind, fields="", tops='top: "y"', options=None):
    text = inputs(x=(4, 2, 3), cont=(4, 2), target=(4, 2, 3)) + (
        f'layer {{ name: "r" type: "{kind}" bottom: "x" bottom: "cont" {tops}'
        f" recurrent_param {{ num_output: 3 {FILLERS} {fields} }} }}"
        'layer { name: "drop" type: "Dropout" bottom: "y" top: "y" }'
        'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "target" top: "loss" }'
    )
    return make_net(text, **(options or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_an_in_place_layer_behind_it_changes_no_gradient(kind):
    kept, freeing = (net_of(kind, options={"keep_blobs": keep}) for keep in (True, False))
    for net in (kept, freeing):
        for layer, values in zip(net.layers, data((4, 2, 3), static=(4, 2, 3)), strict=False):
            layer.values[0].copy_(values)
        net.reseed(5)
        net.clear_param_diffs()
        net.forward_backward()
    assert torch.equal(kept.arena.diff, freeing.arena.diff)
    assert kept.arena.diff.any()
    assert all(layer.saved is None for layer in freeing.layers if layer.type == kind)


@pytest.mark.parametrize("kind", KINDS)
def test_a_test_net_shares_the_weights_but_not_the_state(kind):
    train = net_of(kind)
    test = net_of(kind, options={"phase": 1, "share_with": train})
    for net in (train, test):
        net.blobs["x"].data.fill_(0.5)
        net.blobs["cont"].data.fill_(1)
    train.forward()
    first = test.forward()
    state = [part.clone() for part in test.layers[3].state()]
    train.forward()
    assert all(torch.equal(*pair) for pair in zip(test.layers[3].state(), state, strict=True))
    assert test.forward() != first
    assert test.layers[3].parameters[0].data.data_ptr() == train.layers[3].parameters[0].data.data_ptr()


def test_learning_indicators_are_refused():
    text = inputs(x=(2, 1, 2), c=(2, 1)) + (
        'layer { name: "s" type: "Scale" bottom: "c" top: "cont" scale_param { axis: 0 num_axes: 0 } }'
        'layer { name: "r" type: "LSTM" bottom: "x" bottom: "cont" top: "y" loss_weight: 1'
        " recurrent_param { num_output: 2 } }"
    )
    with pytest.raises(NetError, match=r"no gradient can flow to bottom 1, blob 'cont'"):
        make_net(text)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_written_and_read_as_caffe_orders_them(kind):
    net, other = net_of(kind), net_of(kind, options={"seed": 9})
    message = net.to_proto()
    saved = message.layer[3].blobs
    assert [tuple(blob.shape.dim) for blob in saved] == [parameter.shape for parameter in net.layers[3].parameters]
    assert not torch.equal(net.arena.data, other.arena.data)
    other.copy_trained_layers(message)
    assert torch.equal(net.arena.data, other.arena.data)


@pytest.mark.parametrize("kind", KINDS)
def test_debug_info_shows_each_step(kind, caplog):
    net = net_of(kind, fields="debug_info: true")
    net.blobs["x"].data.fill_(0.5)
    with caplog.at_level(logging.INFO, logger="mgcaffe.engine"):
        net.forward_backward()
    lines = [record.getMessage() for record in caplog.records]
    (state, *_) = net.layers[3].state()
    assert f"    [Forward] Layer r_unit_4, top blob h_4 data: {float(state.abs().mean()):g}" in lines
    assert sum(line.startswith("    [Backward] Layer r_unit_") for line in lines) == 4
    assert sum(", bottom blob " in line and " diff: " in line for line in lines) == 4


def test_operations_are_counted():
    layer, tops = recurrent("LSTM", (5, 3, 2), static=(3, 6), hidden=7)
    assert layer.macs([(5, 3, 2), (5, 3), (3, 6)], tops) == 3 * (5 * 28 * (2 + 7) + 28 * 6)
    layer, tops = recurrent("RNN", (5, 3, 2), hidden=7)
    assert layer.macs([(5, 3, 2), (5, 3)], tops) == 5 * 3 * 7 * (2 + 7 + 7)


# -- what is refused -------------------------------------------------------------------------------------

RECURRENT = "recurrent_param { num_output: 3"


@pytest.mark.parametrize(
    ("bottoms", "tops", "fields", "shapes", "message"),
    [
        ("x c", "y", "", [(4, 3), (4, 3)], r"bottom 0 has to have three axes or more.*not shape \(4, 3\)"),
        ("x c", "y", "", [(4, 3, 2), (4, 2)], r"bottom 1 has to have one number .* \(4, 3\), not shape \(4, 2\)"),
        ("x c", "y", "", [(4, 3, 2), (4, 3, 1)], "bottom 1 has to have one number"),
        ("x c s", "y", "", [(4, 3, 2), (4, 3), (4, 2)], r"static input, has to have shape \(3, ...\)"),
        ("x c s", "y", "", [(4, 3, 2), (4, 3), (3,)], "static input"),
        ("x c s h", "y", "", [(4, 3, 2), (4, 3), (3, 2), (1, 3, 3)], r"without expose_hidden it takes 2 to 3 bottom"),
        ("x c", "y h", "", [(4, 3, 2), (4, 3)], r"without expose_hidden it makes 1 top blob\(s\), not 2"),
        ("x c", "y h k", "expose_hidden: true", [(4, 3, 2), (4, 3)], r"with expose_hidden it takes \d to \d bottom"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_bottoms_and_tops_that_do_not_fit_are_refused(kind, bottoms, tops, fields, shapes, message):
    names = " ".join([*(f'bottom: "{name}"' for name in bottoms.split()), *(f'top: "{name}"' for name in tops.split())])
    with pytest.raises(NetError, match=message):
        make_layer(f'name: "r" type: "{kind}" {names} {RECURRENT} {fields} }}', shapes)


def test_an_exposed_state_of_another_shape_is_refused():
    names = 'bottom: "x" bottom: "c" bottom: "h" top: "y" top: "t"'
    text = f'name: "r" type: "RNN" {names} {RECURRENT} expose_hidden: true }}'
    with pytest.raises(NetError, match=r"bottom 2, a state, has to have shape \(1, 3, 3\), not \(3, 3\)"):
        make_layer(text, [(4, 3, 2), (4, 3), (3, 3)])


@pytest.mark.parametrize("kind", KINDS)
def test_num_output_is_required(kind):
    with pytest.raises(NetError, match="num_output has to be at least 1"):
        make_layer(f'name: "r" type: "{kind}" bottom: "x" bottom: "c" top: "y"', [(4, 3, 2), (4, 3)])


def test_inputs_that_no_longer_fit_the_weights_are_refused():
    layer, _ = recurrent("LSTM", (4, 3, 2), static=(3, 2))
    with pytest.raises(NetError, match=r"bottom 0 changed to shape .* the weight needs 2 inputs per step"):
        layer.reshape([(4, 3, 5), (4, 3), (3, 2)])
    with pytest.raises(NetError, match=r"bottom 2 changed to shape .* the weight needs 2 inputs"):
        layer.reshape([(4, 3, 2), (4, 3), (3, 5)])
