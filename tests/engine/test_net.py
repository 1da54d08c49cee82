"""The net: need-backward sweep, loss weights, outputs, ranges, errors (Caffe's NetTest behaviours)."""

import pytest
import torch

from mgcaffe.engine.net import TEST, TRAIN
from mgcaffe.errors import NetError
from tests.support.netkit import inputs, make_net

IP = 'inner_product_param {{ num_output: {n} weight_filler {{ type: "gaussian" std: 0.3 }} }}'


def ip(name: str, bottom: str, top: str, n: int = 3, extra: str = "") -> str:
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" '
        + IP.format(n=n)
        + f" {extra} }}\n"
    )


def layer(name: str, kind: str, bottoms: str, tops: str, extra: str = "") -> str:
    words = [f'bottom: "{blob}"' for blob in bottoms.split()] + [f'top: "{blob}"' for blob in tops.split()]
    return f'layer {{ name: "{name}" type: "{kind}" {" ".join(words)} {extra} }}\n'


def set_inputs(net, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for name in net.inputs:
        data = net.blobs[name].data
        data.copy_(torch.randn(data.shape, generator=generator, dtype=torch.float64))


SMALL = inputs(x=(4, 5), y=(4, 3)) + ip("ip", "x", "h") + layer("loss", "EuclideanLoss", "h y", "l")


def run(net, seed=0):
    set_inputs(net, seed)
    net.clear_param_diffs()
    return net.forward_backward()


def node(net, name):
    return net.nodes[[one.layer.name for one in net.nodes].index(name)]


def test_layers_without_parameters_below_them_need_no_gradient():
    net = make_net(SMALL)
    assert node(net, "ip").needs_backward
    assert node(net, "ip").wants == [False]
    assert node(net, "loss").wants == [True, False]


def test_force_backward_reaches_the_inputs():
    net = make_net("force_backward: true\n" + SMALL)
    assert node(net, "ip").wants == [True]
    assert node(net, "loss").wants == [True, True]
    run(net)
    assert net.blobs["x"].diff.shape == (4, 5)


def test_force_backward_leaves_labels_alone():
    text = inputs(x=(4, 3), y=(4,)) + layer("loss", "SoftmaxWithLoss", "x y", "l")
    net = make_net("force_backward: true\n" + text)
    assert node(net, "loss").wants == [True, False]


def test_branch_without_a_loss_runs_no_backward():
    text = SMALL + ip("aside", "h", "aside")
    net = make_net(text)
    assert not node(net, "aside").needs_backward
    run(net)
    assert not node(net, "aside").layer.parameters[0].diff.any()


def test_propagate_down_false_stops_the_gradient():
    text = (
        inputs(x=(4, 5), y=(4, 3))
        + ip("below", "x", "h", 5)
        + ip("above", "h", "g", 3, "propagate_down: false")
        + layer("loss", "EuclideanLoss", "g y", "l")
    )
    net = make_net(text)
    assert not node(net, "below").needs_backward
    assert node(net, "above").needs_backward
    run(net)
    assert not node(net, "below").layer.parameters[0].diff.any()
    assert node(net, "above").layer.parameters[0].diff.any()


def test_propagate_down_true_reaches_an_input():
    text = inputs(x=(4, 5), y=(4, 3)) + ip("ip", "x", "h", 3, "propagate_down: true")
    net = make_net(text + layer("loss", "EuclideanLoss", "h y", "l"))
    run(net)
    assert net.blobs["x"].diff.any()


def test_lr_mult_zero_computes_no_parameter_gradient():
    text = (
        inputs(x=(4, 5), y=(4, 3))
        + ip("ip", "x", "h", 3, "param { lr_mult: 0 } param { lr_mult: 1 }")
        + layer("loss", "EuclideanLoss", "h y", "l")
    )
    net = make_net(text)
    run(net)
    weight, bias = node(net, "ip").layer.parameters
    assert not weight.diff.any()
    assert bias.diff.any()
    assert net.arena.trainable == bias.count


def test_loss_weight_scales_loss_and_gradients():
    plain, heavy = make_net(SMALL), make_net(SMALL.replace('top: "l"', 'top: "l" loss_weight: 2.5'))
    assert run(heavy) == pytest.approx(2.5 * run(plain), rel=1e-12)
    torch.testing.assert_close(heavy.arena.diff, 2.5 * plain.arena.diff)
    assert heavy.loss_weights == {"l": 2.5}


def test_loss_weight_in_the_middle_of_the_net_adds_up():
    middle = (
        inputs(x=(4, 5), y=(4, 3))
        + ip("ip", "x", "h", 3, "loss_weight: {w}")
        + layer("loss", "EuclideanLoss", "h y", "l", "loss_weight: {v}")
    )
    parts = [make_net(middle.replace("{w}", w).replace("{v}", v)) for w, v in (("2", "0"), ("0", "3"), ("2", "3"))]
    losses = [run(net) for net in parts]
    assert losses[2] == pytest.approx(losses[0] + losses[1], rel=1e-12)
    torch.testing.assert_close(parts[2].arena.diff, parts[0].arena.diff + parts[1].arena.diff)


def test_one_loss_weight_serves_a_loss_with_two_tops():
    text = inputs(x=(4, 3), y=(4,)) + layer("loss", "SoftmaxWithLoss", "x y", "l prob", "loss_weight: 2")
    assert make_net(text).loss_weights == {"l": 2.0}


def test_wrong_number_of_loss_weights_is_refused():
    text = inputs(x=(4, 3)) + layer("s", "Slice", "x", "a b c", "slice_param { axis: 1 } loss_weight: 1")
    with pytest.raises(NetError, match=r"loss_weight is given 1 time\(s\) for 3 top\(s\) \(layer 's'\)"):
        make_net(text)


def test_loss_without_a_top_gets_one_and_still_counts():
    named, unnamed = make_net(SMALL), make_net(SMALL.replace('top: "l"', ""))
    assert run(named) == run(unnamed)
    assert unnamed.outputs == []


def test_outputs_are_the_unread_blobs_in_alphabetical_order():
    text = inputs(x=(4, 3), y=(4,)) + layer("z", "SoftmaxWithLoss", "x y", "zloss")
    text += layer("a", "Accuracy", "x y", "accuracy")
    assert make_net(text).outputs == ["accuracy", "zloss"]


def test_in_place_layer_leaves_its_blob_an_output():
    net = make_net(inputs(x=(2, 3)) + ip("ip", "x", "h") + layer("r", "ReLU", "h", "h"))
    assert net.outputs == ["h"]
    assert (net.blobs["h"].data is None) or net.blobs["h"].shape == (2, 3)


def test_backward_through_an_accuracy_branch_changes_nothing():
    text = inputs(x=(4, 5), y=(4,)) + ip("ip", "x", "h") + layer("loss", "SoftmaxWithLoss", "h y", "l")
    plain, both = make_net(text), make_net(text + layer("a", "Accuracy", "h y", "accuracy"))
    for net in (plain, both):
        set_inputs(net)
        net.blobs["y"].data.copy_(torch.tensor([0.0, 1, 2, 1]))
        net.forward_backward()
    torch.testing.assert_close(plain.arena.diff, both.arena.diff)


def test_freeing_blobs_changes_no_result():
    text = (
        inputs(x=(4, 5), y=(4, 3))
        + ip("a", "x", "h", 6)
        + layer("r", "ReLU", "h", "h")
        + ip("b", "h", "p", 3)
        + ip("c", "h", "q", 3)
        + layer("e", "Eltwise", "p q", "s")
        + layer("t", "TanH", "s", "s")
        + layer("loss", "EuclideanLoss", "s y", "l")
    )
    kept, freed = make_net(text), make_net(text, keep_blobs=False)
    set_inputs(kept)
    data = {name: kept.blobs[name].data.clone() for name in ("x", "y")}
    for layer_of_inputs in freed.nodes[:2]:
        layer_of_inputs.layer.forward([])[0].copy_(data[layer_of_inputs.tops[0].name])
    losses = []
    for net in (kept, freed):
        for _ in range(2):
            net.clear_param_diffs()
            losses.append(net.forward_backward())
    assert len(set(losses)) == 1
    assert torch.equal(kept.arena.diff, freed.arena.diff)
    assert freed.blobs["p"].data is None
    assert freed.blobs["h"].diff is None


def test_gradients_accumulate_until_cleared():
    net = make_net(SMALL)
    run(net)
    once = net.arena.diff.clone()
    net.forward_backward()
    torch.testing.assert_close(net.arena.diff, 2 * once)
    net.clear_param_diffs()
    net.forward_backward()
    torch.testing.assert_close(net.arena.diff, once)


def test_ranges_run_part_of_the_net():
    net = make_net(SMALL)
    run(net)
    kept = net.blobs["h"].data.clone()
    net.blobs["x"].data.zero_()
    net.forward(start=3)
    assert torch.equal(net.blobs["h"].data, kept)
    net.forward(start=2, end=3)
    assert not torch.equal(net.blobs["h"].data, kept)


def test_layers_are_reported_done_in_descending_order():
    net = make_net(SMALL)
    set_inputs(net)
    done = []
    net.forward_backward(done.append)
    assert done == list(range(len(net.layers) - 1, -1, -1))


def test_a_bottom_that_changes_shape_reshapes_what_follows():
    net = make_net(inputs(x=(4, 5)) + ip("ip", "x", "h") + layer("t", "TanH", "h", "t"))
    net.forward()
    net.blobs["x"].data = torch.zeros(7, 5, dtype=torch.float64)
    net.forward(start=1)
    assert net.blobs["t"].shape == (7, 3)


def test_unknown_type_names_layer_and_nearest_type():
    with pytest.raises(NetError) as error:
        make_net(inputs(x=(4, 5)) + layer("conv1", "Convolutoin", "x", "y"))
    assert "unknown layer type 'Convolutoin' (layer 'conv1'). Did you mean 'Convolution'?" in str(error.value)
    assert "InnerProduct" in str(error.value)


def test_two_sources_of_one_blob_are_refused():
    with pytest.raises(NetError, match="'h' is produced by multiple sources"):
        make_net(inputs(x=(4, 5)) + ip("a", "x", "h") + ip("b", "x", "h"))


def test_two_tops_of_one_name_are_refused():
    with pytest.raises(NetError, match=r"'h' is produced by multiple sources \(layer 'cut', top 1\)"):
        make_net(inputs(x=(4, 6)) + layer("cut", "Slice", "x", "h h"))


def test_wrong_number_of_bottoms_is_refused():
    with pytest.raises(NetError, match=r"EuclideanLoss takes 2 bottom blob\(s\), not 1 \(layer 'loss'\)"):
        make_net(inputs(x=(4, 5)) + layer("loss", "EuclideanLoss", "x", "l"))


def test_too_many_param_messages_are_refused():
    with pytest.raises(NetError, match=r"3 param message\(s\) are given, but the layer has 2"):
        make_net(inputs(x=(4, 5)) + ip("a", "x", "h", 3, "param {} param {} param {}"))


def test_a_gradient_that_would_flow_into_labels_is_refused():
    text = inputs(x=(4, 5), z=(4, 1)) + ip("a", "x", "h") + ip("b", "z", "label", 1)
    with pytest.raises(NetError, match="no gradient can flow to bottom 1, blob 'label'"):
        make_net(text + layer("loss", "SoftmaxWithLoss", "h label", "l"))


def test_a_test_net_may_lack_a_gradient_until_backward_asks_for_it():
    text = inputs(x=(4, 5), y=(4, 3)) + ip("a", "x", "h") + layer("t", "Threshold", "h", "t")
    net = make_net(text + layer("loss", "EuclideanLoss", "t y", "l"), phase=TEST)
    set_inputs(net)
    net.forward()
    with pytest.raises(NetError, match="no gradient can flow to bottom 0, blob 'h'"):
        net.backward()


def test_a_freeing_test_net_keeps_nothing_for_backward():
    net = make_net(SMALL, phase=TEST, keep_blobs=False)
    net.forward()
    assert all(layer.saved is None for layer in net.layers)


def test_bad_filler_names_the_layer():
    text = inputs(x=(4, 5)) + ip("a", "x", "h").replace("gaussian", "gaussain")
    with pytest.raises(NetError, match=r"unknown filler type 'gaussain'. Did you mean 'gaussian'\?.*layer 'a'"):
        make_net(text)


def test_phases_and_stages_choose_layers():
    text = SMALL + layer("a", "Silence", "x2", "", "include { phase: TEST }").replace('bottom: "x2"', 'bottom: "h"')
    assert [one.name for one in make_net(text, phase=TRAIN).layers][-1] == "loss"
    assert "a" in [one.name for one in make_net(text, phase=TEST).layers]


def test_the_same_seed_gives_the_same_weights():
    assert torch.equal(make_net(SMALL).arena.data, make_net(SMALL).arena.data)
    assert not torch.equal(make_net(SMALL).arena.data, make_net(SMALL, seed=2).arena.data)


def test_without_a_seed_each_net_draws_its_own():
    first, second = (make_net(SMALL, seed=None) for _ in range(2))
    assert first.seed != second.seed
    assert not torch.equal(first.arena.data, second.arena.data)


def test_blobs_and_layers_are_found_by_name():
    net = make_net(SMALL)
    assert {"x", "y", "h", "l"} == set(net.blobs)
    assert net.blobs["h"] is net.top_blobs[2][0]
    assert [one.name for one in net.layers] == ["x", "y", "ip", "loss"]
    assert "nothing" not in net.blobs


ALL_IN_ONE = (
    'layer { name: "train" type: "Input" top: "x" top: "y" include { phase: TRAIN not_stage: "deploy" }'
    " input_param { shape { dim: 8 dim: 5 } shape { dim: 8 } } }\n"
    'layer { name: "val" type: "Input" top: "x" top: "y" include { phase: TEST not_stage: "deploy" }'
    " input_param { shape { dim: 4 dim: 5 } shape { dim: 4 } } }\n"
    'layer { name: "deploy" type: "Input" top: "x" include { stage: "deploy" }'
    " input_param { shape { dim: 1 dim: 5 } } }\n"
    + ip("ip", "x", "h")
    + layer("loss", "SoftmaxWithLoss", "h y", "l", 'include { phase: TRAIN } include { phase: TEST stage: "val" }')
    + layer("accuracy", "Accuracy", "h y", "a", 'include { phase: TEST stage: "val" }')
    + layer("prob", "Softmax", "h", "p", 'include { phase: TEST stage: "deploy" }')
)


@pytest.mark.parametrize(
    ("phase", "stages", "names", "batch"),
    [
        (TRAIN, (), ["train", "ip", "loss"], 8),
        (TEST, ("val",), ["val", "ip", "loss", "accuracy"], 4),
        (TEST, ("deploy",), ["deploy", "ip", "prob"], 1),
    ],
)
def test_one_file_holds_the_nets_to_train_to_validate_and_to_deploy(phase, stages, names, batch):
    net = make_net(ALL_IN_ONE, phase=phase, stages=stages)
    assert [one.name for one in net.layers if one.type != "Split"] == names
    net.forward()
    assert net.blobs["h"].shape == (batch, 3)


def test_a_reshaped_net_computes_what_a_net_of_that_size_computes():
    body = layer(
        "conv",
        "Convolution",
        "x",
        "c",
        "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2"
        ' weight_filler { type: "gaussian" std: 0.3 } }',
    )
    body += layer("relu", "ReLU", "c", "c") + layer("pool", "Pooling", "c", "p", "pooling_param { kernel_size: 2 }")
    body += layer("norm", "LRN", "p", "n") + layer("soft", "Softmax", "n", "s")
    net = make_net(inputs(x=(2, 3, 12, 10)) + body)
    for shape in ((2, 3, 12, 10), (4, 3, 9, 11), (1, 3, 20, 6)):
        values = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        net.layers[0].values[0] = values
        net.reshape()
        fresh = make_net(inputs(x=shape) + body)
        fresh.blobs["x"].data.copy_(values)
        assert net.blobs["s"].shape == fresh.blobs["s"].shape
        net.forward()
        fresh.forward()
        assert torch.equal(net.blobs["s"].data, fresh.blobs["s"].data)


def test_a_frozen_layer_below_one_that_learns_gets_no_gradient_at_all():
    frozen = "param { lr_mult: 0 } param { lr_mult: 0 }"
    text = inputs(x=(4, 5), y=(4, 3)) + ip("a", "x", "h", 6, "{}") + ip("b", "h", "g", 3, "[]")
    text += layer("loss", "EuclideanLoss", "g y", "l")

    def gradients(first, second):
        net = make_net(text.replace("{}", first).replace("[]", second))
        run(net)
        return [bool(parameter.diff.any()) for parameter in net.parameters], node(net, "a").needs_backward

    assert gradients("", "") == ([True] * 4, True)
    assert gradients(frozen, "") == ([False, False, True, True], False)
    assert gradients("", frozen) == ([True, True, False, False], True)
    assert gradients(frozen, "param { lr_mult: 0 }") == ([False, False, False, True], False)
    assert gradients(frozen, frozen) == ([False] * 4, False)
