"""caffe.Net: what pycaffe's own tests check of it, and what scripts rely on."""

import gc

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import DataError, NetError, UsageError
from tests.support.pycaffe_nets import DEPLOY, SIMPLE, net, write


@pytest.fixture
def simple(tmp_path):
    caffe.set_random_seed(1)
    return net(tmp_path, SIMPLE)


@pytest.fixture
def deploy(tmp_path):
    return net(tmp_path, DEPLOY, caffe.TEST)


def test_memory_of_blobs_and_params_outlives_the_net(tmp_path):
    made = net(tmp_path, SIMPLE)
    kept = [blob.data for blobs in made.params.values() for blob in blobs]
    kept += [blob.data for blob in made.blobs.values()]
    expected = [array.copy() for array in kept]
    del made
    gc.collect()
    assert all(np.array_equal(array, copy) for array, copy in zip(kept, expected, strict=True))


def test_layer_dict_holds_the_layers_by_name(simple):
    assert list(simple.layer_dict) == simple._layer_names == ["data", "conv", "ip", "loss"]
    for name, layer in simple.layer_dict.items():
        assert layer is simple.layers[simple._layer_names.index(name)]
    assert simple.layer_dict["conv"].type == "Convolution"
    assert [blob.shape for blob in simple.layer_dict["conv"].blobs] == [(11, 2, 2, 2), (11,)]


def test_forward_and_backward_without_arguments(simple):
    outputs = simple.forward()
    assert list(outputs) == ["loss"]
    assert outputs["loss"].shape == ()
    assert simple.backward() == {}
    assert np.abs(simple.params["conv"][0].diff).max() > 0


def test_forward_and_backward_of_a_range(simple):
    simple.forward()
    conv = simple.blobs["conv"].data
    conv[...] = 1
    outputs = simple.forward(start="ip", end="ip")
    assert list(outputs) == ["ip_blob"]
    weights, bias = (blob.data for blob in simple.params["ip"])
    np.testing.assert_allclose(outputs["ip_blob"][0], weights.sum(axis=1) + bias, rtol=1e-4)
    simple.forward(start="loss")
    diffs = simple.backward(start="loss", end="ip")
    assert list(diffs) == ["conv"]
    simple.backward(start="conv", end="conv")
    assert np.abs(simple.blobs["data"].diff).max() > 0


def test_backward_after_a_reshape_takes_the_new_shape(deploy):
    deploy.forward()
    deploy.blobs["data"].reshape(2, 3, 8, 8)
    deploy.reshape()
    deploy.blobs["prob"].diff[...] = 1
    deploy.backward()
    assert deploy.blobs["data"].diff.shape == (2, 3, 8, 8)


def test_backward_continues_from_where_it_stopped(simple):
    simple.forward()
    simple.backward()
    whole = simple.blobs["data"].diff.copy()
    simple.blobs["data"].diff[...] = 0
    simple.backward(end="ip")
    simple.backward(start="conv")
    np.testing.assert_array_equal(simple.blobs["data"].diff, whole)


def test_clear_param_diffs(simple):
    simple.forward()
    simple.backward()
    diff = simple.params["conv"][0].diff
    assert diff.max() > 0
    simple.clear_param_diffs()
    assert (diff == 0).all()


def test_parameter_gradients_add_up_until_they_are_cleared(simple):
    simple.forward()
    simple.backward()
    once = simple.params["conv"][0].diff.copy()
    simple.backward()
    np.testing.assert_allclose(simple.params["conv"][0].diff, 2 * once, rtol=1e-5)
    simple.clear_param_diffs()
    simple.params["conv"][0].diff[...] = 1
    simple.backward()
    np.testing.assert_allclose(simple.params["conv"][0].diff, once + 1, rtol=1e-4, atol=1e-5)


def test_top_and_bottom_names(simple):
    assert simple.top_names == {"data": ["data", "label"], "conv": ["conv"], "ip": ["ip_blob"], "loss": ["loss"]}
    assert simple.bottom_names == {"data": [], "conv": ["data"], "ip": ["conv"], "loss": ["ip_blob", "label"]}


def test_inputs_and_outputs(simple, tmp_path):
    assert simple.inputs == []
    assert simple.outputs == ["loss"]
    deploy = net(tmp_path, DEPLOY, caffe.TEST)
    assert deploy.inputs == ["data"]
    assert deploy.outputs == ["prob"]


def test_the_numbers_by_which_scripts_walk_the_graph(simple):
    assert simple._blob_names == list(simple.blobs)
    assert [simple._blob_names[number] for number in simple._outputs] == simple.outputs
    assert [simple._blob_names[number] for number in simple._inputs] == simple.inputs
    for number, name in enumerate(simple._layer_names):
        assert [simple._blob_names[blob] for blob in simple._top_ids(number)] == simple.top_names[name]
        assert [simple._blob_names[blob] for blob in simple._bottom_ids(number)] == simple.bottom_names[name]
    assert [blob.shape for blob in simple._blobs] == [blob.shape for blob in simple.blobs.values()]
    last = len(simple.layers) - 1
    assert simple._forward(0, last) == pytest.approx(simple.blobs["loss"].data.item(), rel=1e-6)
    simple._backward(last, 1)
    assert np.abs(simple.params["conv"][0].diff).max() > 0


def test_losses_without_tops_have_those_of_caffes_name(tmp_path):
    text = SIMPLE.replace(' top: "loss"', "") + SIMPLE[SIMPLE.rindex("layer {") :].replace(
        'name: "loss" bottom: "ip_blob" bottom: "label" top: "loss"',
        'name: "half" bottom: "ip_blob" bottom: "label" loss_weight: 0.5',
    )
    caffe.set_random_seed(1)  # of other weights the loss may be 0: all images have one class, and large scores
    made = net(tmp_path, text)
    assert list(made.blobs)[-1] == "(automatic)"
    assert made._blob_names[-2:] == ["(automatic)"] * 2
    assert made.top_names["loss"] == made.top_names["half"] == ["(automatic)"]
    assert made.outputs == []
    assert made.blob_loss_weights["(automatic)"] == made.blobs["(automatic)"].diff == 0.5
    ids = [made._top_ids(made._layer_names.index(name)) for name in ("loss", "half")]
    assert ids == [[len(made._blob_names) - 2], [len(made._blob_names) - 1]]
    assert made.forward() == {}
    loss = made.forward(end="loss", blobs=["ip_blob"])
    assert list(loss) == ["(automatic)", "ip_blob"]
    assert made.blobs["(automatic)"].data > 0


def test_blob_loss_weights(simple):
    assert simple.blob_loss_weights == {"data": 0, "label": 0, "conv": 0, "ip_blob": 0, "loss": 1}


def test_save_and_read(simple, tmp_path):
    simple.forward()
    path = str(tmp_path / "weights.caffemodel")
    simple.save(path)
    for read in (
        caffe.Net(str(tmp_path / "net.prototxt"), path, caffe.TRAIN),
        caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN, weights=path),
        caffe.Net(network_file=str(tmp_path / "net.prototxt"), phase=caffe.TRAIN, weights=path),
    ):
        assert list(read.params) == ["conv", "ip"]
        for name, blobs in simple.params.items():
            for mine, theirs in zip(blobs, read.params[name], strict=True):
                np.testing.assert_array_equal(mine.data, theirs.data)


def test_copy_from_and_share_with(simple, tmp_path):
    path = str(tmp_path / "weights.caffemodel")
    simple.save(path)
    other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    assert np.abs(other.params["ip"][0].data - simple.params["ip"][0].data).max() > 0
    other.copy_from(path)
    np.testing.assert_array_equal(other.params["ip"][0].data, simple.params["ip"][0].data)
    other.share_with(simple)
    other.params["ip"][0].data[0, 0] = 42
    assert simple.params["ip"][0].data[0, 0] == 42


def test_save_and_load_hdf5(simple, tmp_path):
    path = str(tmp_path / "weights.caffemodel.h5")
    simple.save_hdf5(path)
    other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
    other.load_hdf5(path)
    np.testing.assert_array_equal(other.params["conv"][1].data, simple.params["conv"][1].data)
    third = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN, weights=path)
    np.testing.assert_array_equal(third.params["conv"][0].data, simple.params["conv"][0].data)


# -- blobs ---------------------------------------------------------------------------------------------------


def test_a_blob_tells_its_shape(simple):
    blob = simple.blobs["data"]
    assert blob.shape == (5, 2, 3, 4) == blob.data.shape
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (5, 2, 3, 4, 120)
    assert (simple.blobs["ip_blob"].channels, simple.blobs["ip_blob"].height) == (13, 1)


def test_num_and_its_kin_are_refused_beyond_four_axes(tmp_path):
    made = net(tmp_path, 'layer { name: "x" type: "Input" top: "x" input_param { shape { ' + 5 * "dim: 2 " + "} } }")
    assert made.blobs["x"].count == 32
    with pytest.raises(NetError, match="at most 4 axes"):
        _ = made.blobs["x"].num


def test_blobs_can_be_read_and_written_before_the_first_pass(deploy):
    assert (deploy.blobs["fc"].data == 0).all()
    assert (deploy.blobs["fc"].diff == 0).all()
    deploy.blobs["fc"].data[...] = 3
    np.testing.assert_allclose(deploy.forward(start="prob")["prob"], 0.2)


def test_constant_dummy_data_lie_in_their_blob_before_the_first_pass_and_can_be_written(tmp_path):
    made = net(tmp_path, SIMPLE.replace('{ type: "constant" }', '{ type: "constant" value: 2 }'))
    labels = made.blobs["label"].data
    assert (labels == 2).all()
    labels[...] = np.arange(5).reshape(labels.shape)
    for _ in range(2):
        made.forward()
        np.testing.assert_array_equal(made.blobs["label"].data.ravel(), np.arange(5))


def test_data_written_into_an_input_is_what_forward_reads(deploy):
    values = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    view = deploy.blobs["data"].data
    view[...] = values
    first = deploy.forward()["prob"].copy()
    view[...] = 2 * values
    assert np.abs(deploy.forward()["prob"] - first).max() > 0
    np.testing.assert_array_equal(deploy.forward(data=values)["prob"], first)


def test_inputs_are_broadcast_as_numpy_does(deploy):
    values = np.random.default_rng(0).standard_normal((4, 1, 8, 8)).astype(np.float32)
    deploy.forward(data=values)
    np.testing.assert_array_equal(deploy.blobs["data"].data, np.broadcast_to(values, (4, 3, 8, 8)))
    top = np.arange(4)[:, np.newaxis]
    deploy.backward(prob=top)
    np.testing.assert_array_equal(deploy.blobs["prob"].diff, np.broadcast_to(top, (4, 5)))


def test_an_input_that_a_layer_in_place_writes_over_can_be_filled_anew(tmp_path):
    text = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }
      layer { name: "twice" type: "Power" bottom: "x" top: "x" power_param { scale: 2 } }"""
    made = net(tmp_path, text)
    kept = made.blobs["x"].data
    kept[...] = 1
    for _ in range(2):
        assert made.forward()["x"].tolist() == [2, 2]  # what was written stays, where Caffe's next pass gives 4
    kept[...] = 3
    assert made.forward()["x"].tolist() == [6, 6]
    made.blobs["x"].data[1] = 5
    assert made.forward()["x"].tolist() == [12, 10]
    assert made.forward(x=np.array([12, 10]))["x"].tolist() == [24, 20]
    made.blobs["x"].reshape(3)
    made.blobs["x"].data[...] = 7
    assert made.forward()["x"].tolist() == [14, 14, 14]


def test_data_written_between_ranges_is_what_the_next_layer_reads(deploy):
    deploy.forward(end="conv1")
    deploy.blobs["conv1"].data[0] = 0
    deploy.forward(start="relu1")
    bias = deploy.params["fc"][1].data
    np.testing.assert_allclose(deploy.blobs["fc"].data[0], bias, atol=1e-6)


def test_parameters_written_through_are_what_forward_uses(deploy):
    for blob in deploy.params["fc"]:
        blob.data[...] = 0
    deploy.params["fc"][1].data[2] = 100
    np.testing.assert_allclose(deploy.forward()["prob"][:, 2], 1)


def test_a_parameter_cannot_be_exchanged_as_if_it_were_written(deploy):
    with pytest.raises(TypeError, match="does not support item assignment"):
        next(iter(deploy.params.values()))[0] = 0


def test_forward_checks_its_inputs(deploy):
    with pytest.raises(ValueError, match="do not match"):
        deploy.forward(image=np.zeros((4, 3, 8, 8)))
    with pytest.raises(ValueError, match=r"not batch sized: it has shape \(3, 3, 8, 8\)"):
        deploy.forward(data=np.zeros((3, 3, 8, 8)))
    with pytest.raises(ValueError, match=r"has shape \(4, 192\), but the blob has shape \(4, 3, 8, 8\)"):
        deploy.forward(data=np.zeros((4, 192)))
    with pytest.raises(KeyError, match="no blob 'fc9'"):
        deploy.forward(blobs=["fc9"])
    with pytest.raises(UsageError, match="no layer 'conv9'"):
        deploy.forward(start="conv9")
    with pytest.raises(UsageError, match="no blob 'fc9'"):
        deploy.forward(["fc9"])


def test_forward_returns_further_blobs(deploy):
    assert list(deploy.forward(blobs=["conv1", "fc"])) == ["prob", "conv1", "fc"]


def test_backward_from_a_given_gradient(deploy):
    deploy.forward(data=np.random.default_rng(0).standard_normal((4, 3, 8, 8)))
    with pytest.raises(ValueError, match="do not match"):
        deploy.backward(fc=np.zeros((4, 5)))
    top = np.zeros((4, 5))
    top[:, 1] = 1
    diffs = deploy.backward(diffs=["fc"], prob=top)
    assert set(diffs) == {"data", "fc"}
    prob = deploy.blobs["prob"].data
    expected = prob[:, 1:2] * (top - prob)
    np.testing.assert_allclose(diffs["fc"], expected, atol=1e-6)


def test_a_written_gradient_starts_backward_in_the_middle(deploy):
    deploy.forward(end="fc")
    deploy.blobs["fc"].diff[...] = 0
    deploy.blobs["fc"].diff[0, 3] = 1
    deploy.backward(start="fc", end="fc")
    np.testing.assert_allclose(deploy.blobs["conv1"].diff[0].ravel(), deploy.params["fc"][0].data[3], rtol=1e-5)
    assert (deploy.blobs["conv1"].diff[1:] == 0).all()


def test_the_gradient_of_a_loss_can_be_overridden(simple):
    assert simple.blobs["loss"].diff == 1
    simple.forward()
    simple.backward()
    once = simple.blobs["ip_blob"].diff.copy()
    simple.blobs["loss"].diff[...] = 3
    simple.backward()
    np.testing.assert_allclose(simple.blobs["ip_blob"].diff, 3 * once, rtol=1e-5, atol=1e-12)


def test_reshape_of_an_input_passes_through_the_net(tmp_path):
    text = DEPLOY[: DEPLOY.index('layer { name: "fc"')]
    made = net(tmp_path, text, caffe.TEST)
    made.blobs["data"].reshape(1, 3, 10, 12)
    assert made.blobs["data"].data.shape == (1, 3, 10, 12)
    made.reshape()
    assert made.blobs["conv1"].data.shape == (1, 4, 8, 10)
    made.blobs["data"].data[...] = 1
    assert made.forward()["conv1"].shape == (1, 4, 8, 10)
    made.blobs["conv1"].diff[...] = 1
    made.backward()
    assert made.blobs["data"].diff.shape == (1, 3, 10, 12)
    made.blobs["data"].reshape(2, 3, 5, 5)
    made.forward()
    assert made.blobs["conv1"].diff.shape == (2, 4, 3, 3)
    made.backward()
    assert made.blobs["data"].diff.shape == (2, 3, 5, 5)


def test_reshape_keeps_the_values_that_still_fit(deploy):
    blob = deploy.blobs["data"]
    blob.data.flat = np.arange(blob.count)
    blob.reshape(2, 3, 8, 8)
    np.testing.assert_array_equal(blob.data.ravel(), np.arange(384))
    with pytest.raises(NetError, match="at least 0"):
        blob.reshape(-1, 3, 8, 8)
    with pytest.raises(NetError, match="learnable"):
        deploy.params["fc"][0].reshape(1, 1)


def test_forward_all_runs_batch_by_batch(deploy):
    images = np.random.default_rng(1).standard_normal((10, 3, 8, 8)).astype(np.float32)
    result = deploy.forward_all(blobs=["fc"], data=images)
    assert result["prob"].shape == (10, 5)
    assert result["fc"].shape == (10, 5)
    np.testing.assert_allclose(deploy.forward(data=images[6:10])["prob"], result["prob"][6:10], rtol=1e-5)


def test_batches_of_a_script_are_the_nets(deploy):
    images = np.random.default_rng(1).standard_normal((10, 3, 8, 8)).astype(np.float32)
    batches = [batch["data"] for batch in deploy._batch({"data": images})]
    assert [batch.shape for batch in batches] == [(4, 3, 8, 8)] * 3
    np.testing.assert_array_equal(np.concatenate(batches)[:10], images)
    assert not batches[2][2:].any()


def test_forward_backward_all(deploy):
    random = np.random.default_rng(1)
    images, top = random.standard_normal((6, 3, 8, 8)), random.standard_normal((6, 5))
    values, diffs = deploy.forward_backward_all(blobs=["conv1"], diffs=["fc"], data=images, prob=top)
    assert values["conv1"].shape == (6, 4, 6, 6)
    assert diffs["data"].shape == (6, 3, 8, 8)
    deploy.forward(data=images[:4])
    np.testing.assert_allclose(deploy.backward(prob=top[:4])["data"], diffs["data"][:4], rtol=1e-4, atol=1e-6)


def test_hooks_are_called_with_each_layers_number(simple):
    seen = []
    simple.before_forward(lambda layer: seen.append(("before forward", layer)))
    simple.after_forward(lambda layer: seen.append(("after forward", layer)))
    simple.before_backward(lambda layer: seen.append(("before backward", layer)))
    simple.after_backward(lambda layer: seen.append(("after backward", layer)))
    simple.forward()
    assert seen == [(when, layer) for layer in range(4) for when in ("before forward", "after forward")]
    seen.clear()
    simple.backward()
    assert seen == [(when, layer) for layer in (3, 2, 1, 0) for when in ("before backward", "after backward")]


def test_set_input_arrays_feeds_a_memory_data_layer(tmp_path):
    text = """layer { name: "data" type: "MemoryData" top: "data" top: "label"
      memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 } }"""
    made = net(tmp_path, text)
    data = np.arange(24, dtype=np.float32).reshape(4, 1, 2, 3)
    labels = np.arange(4, dtype=np.float32).reshape(4, 1, 1, 1)
    made.set_input_arrays(data, labels)
    np.testing.assert_array_equal(made.forward()["data"], data[:2])
    np.testing.assert_array_equal(made.forward()["label"], [2, 3])
    with pytest.raises(DataError, match="batch_size"):
        made.set_input_arrays(data[:3], labels[:3])
    with pytest.raises(UsageError, match="MemoryData"):
        net(tmp_path, DEPLOY).set_input_arrays(data, labels)


def test_a_seed_makes_nets_repeatable(tmp_path):
    first, second = [], []
    for weights in (first, second):
        caffe.set_random_seed(7)
        weights += [net(tmp_path, DEPLOY).params["fc"][0].data for _ in range(2)]
    np.testing.assert_array_equal(first, second)
    assert np.abs(first[0] - first[1]).max() > 0


def test_mistakes_in_making_a_net_are_clear(tmp_path):
    with pytest.raises(UsageError, match=r"neither caffe\.TRAIN"):
        caffe.Net(write(tmp_path, DEPLOY), 7)


def test_files_that_cannot_be_opened_are_runtime_errors(tmp_path, deploy):
    file = write(tmp_path, DEPLOY)
    for call in (
        lambda: caffe.Net("nowhere", caffe.TEST),
        lambda: caffe.Net(file, "nowhere", caffe.TEST),
        lambda: caffe.Net(file, caffe.TEST, weights="nowhere"),
        lambda: deploy.copy_from("nowhere"),
        lambda: deploy.load_hdf5("nowhere"),
        lambda: caffe.Classifier(file, "nowhere"),
        lambda: caffe.get_solver("nowhere"),
        lambda: caffe.SGDSolver("nowhere"),
    ):
        with pytest.raises(RuntimeError, match="nowhere: could not open file: No such file or directory") as caught:
            call()
        assert caught.value.exit_code == 65
    with pytest.raises(RuntimeError, match="could not open file: Is a directory"):
        caffe.Net(tmp_path, caffe.TEST)


def test_weights_in_the_place_of_the_level_are_a_clear_mistake(tmp_path):
    file = write(tmp_path, SIMPLE)
    with pytest.raises(ValueError, match=r"third argument, 'some\.caffemodel', is no level"):
        caffe.Net(file, caffe.TEST, "some.caffemodel")


def test_weights_without_a_phase_are_refused(tmp_path, deploy):
    deploy.save(tmp_path / "net.caffemodel")
    with pytest.raises(ValueError, match=r"the phase is missing\n.*Net\(file, weights, caffe\.TEST\)"):
        caffe.Net(str(tmp_path / "net.prototxt"), str(tmp_path / "net.caffemodel"))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("set_phase_test", r"Net\(file, weights, caffe\.TEST\)"),
        ("set_mode_gpu", r"call caffe\.set_mode_gpu\("),
        ("set_raw_scale", r"caffe\.io\.Transformer, which has set_raw_scale"),
    ],
)
def test_methods_of_the_first_releases_say_what_to_write(deploy, name, hint):
    assert not hasattr(deploy, name)
    with pytest.raises(AttributeError, match=rf"'Net' object has no attribute '{name}' since Caffe 1\.0\n.*{hint}"):
        getattr(deploy, name)
    with pytest.raises(AttributeError, match=r"'Net' object has no attribute 'forwards'$") as caught:
        deploy.forwards()
    assert not isinstance(caught.value, UsageError)


def test_functions_of_the_first_releases_say_what_to_write():
    with pytest.raises(UsageError, match=r"has no attribute 'set_phase_train' since Caffe 1\.0"):
        caffe.set_phase_train()
    with pytest.raises(AttributeError, match=r"has no attribute 'set_phases'$"):
        caffe.set_phases()


def test_learnable_blobs_are_of_the_class_that_scripts_compare_with(deploy):
    assert {type(blobs) for blobs in deploy.params.values()} == {caffe.BlobVec}
