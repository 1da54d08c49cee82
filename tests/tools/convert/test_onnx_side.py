"""ONNX files as a side of a proof, also those that other programs wrote."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from mgcaffe.errors import DataError, UsageError
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.onnx_in.tensors import read_tensor
from mgcaffe.tools.convert.onnx_reading import read_model
from mgcaffe.tools.convert.onnx_side import OnnxSide, need_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def model(tmp_path, shape=(2, 3), *, external=False, operator="Relu", columns=300, dtype=np.float32):
    """A product with a matrix of ones, then an operator: two nodes, one output."""
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((3, columns), dtype), "w")
    kind = TensorProto.FLOAT if dtype == np.float32 else TensorProto.DOUBLE
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(operator, ["h"], ["y"])]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [weights],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "model.onnx"
    onnx.save(made, str(path), save_as_external_data=external, location="weights.bin")
    return path


@pytest.mark.parametrize("external", [False, True])
def test_every_value_between_nodes_is_given(tmp_path, external):
    side = OnnxSide(model(tmp_path, external=external))
    assert (side.inputs, side.outputs) == ({"x": (2, 3)}, ["y"])
    values = side.run({"x": -np.ones((2, 3), np.float32)})
    assert set(values) == {"h", "y"}
    assert (values["h"] == -3).all() and (values["y"] == 0).all()
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"model.onnx", "weights.bin"} if external else {"model.onnx"})


def test_large_weights_are_found_behind_a_symbolic_link(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0a1b").write_bytes(model(tmp_path, columns=2000).read_bytes())
    link = tmp_path / "link.onnx"
    link.symlink_to(tmp_path / "blobs" / "0a1b")
    values = OnnxSide(link).run({"x": np.ones((2, 3), np.float32)})
    assert values["y"].shape == (2, 2000) and (values["y"] == 3).all()
    (tensor,) = read_model(link).graph.initializer
    assert (read_tensor(tensor, link, "weight 'w'") == 1).all()


def test_large_weights_stay_in_the_file(tmp_path):
    from onnx import TensorProto, helper, numpy_helper

    values = np.random.default_rng(0).standard_normal((3, 2000)).astype(np.float32)
    constants = {"w": values, "i": np.arange(2000)[::-1].copy(), "h": values[0].astype(np.float64)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gather", ["a", "i"], ["b"], axis=1),
        helper.make_node("Cast", ["h"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    weights = {tensor.name: tensor for tensor in read_model(path).graph.initializer}
    assert [name for name, tensor in weights.items() if tensor.external_data] == ["w", "h"]
    assert not weights["w"].raw_data and weights["i"].raw_data
    x = np.ones((2, 3), np.float32)
    expected = (x @ values)[:, ::-1] + values[0]
    np.testing.assert_allclose(OnnxSide(path).run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)


def test_open_sizes_have_to_be_given(tmp_path):
    path = model(tmp_path, ("N", 3))
    with pytest.raises(UsageError, match=r"input 'x' has the open shape \(N, 3\)\n.*--input_shape x="):
        OnnxSide(path)
    assert OnnxSide(path, {"x": (5, 3)}).inputs == {"x": (5, 3)}
    assert OnnxSide(path, {"": (4, 3)}).inputs == {"x": (4, 3)}


def test_what_onnxruntime_cannot_run_is_one_line(tmp_path):
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"\xff" * 40)
    with pytest.raises(DataError, match=r"bad\.onnx is no ONNX model: "):
        OnnxSide(path)
    with pytest.raises(DataError, match=r"cannot read .*none\.onnx: No such file"):
        OnnxSide(tmp_path / "none.onnx")
    with pytest.raises(DataError, match=r"model\.onnx: onnxruntime does not take it: ") as caught:
        OnnxSide(model(tmp_path, operator="Unheard"))
    assert "\n" not in str(caught.value)
    side = OnnxSide(model(tmp_path))
    with pytest.raises(DataError, match=r"model\.onnx: onnxruntime cannot run it: "):
        side.run({"x": np.ones((2, 4), np.float32)})


def test_a_model_without_kernels_converts_without_the_comparison(tmp_path):
    path = model(tmp_path, operator="Softplus", dtype=np.float64)
    with pytest.raises(DataError, match=r"onnxruntime does not take it: .*Softplus") as caught:
        convert(str(path), str(tmp_path / "net.prototxt"))
    assert caught.value.hint == "--no_check converts without the comparison"
    convert(str(path), str(tmp_path / "net.prototxt"), check=False)
    assert "BNLL" in (tmp_path / "net.prototxt").read_text()


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name.startswith("onnx") else find(name))
    with pytest.raises(UsageError, match="onnx is not installed\n  pip install 'mgcaffe\\[onnx\\]'"):
        need_onnx("onnx")
    with pytest.raises(UsageError, match="onnx and onnxruntime are not installed"):
        need_onnx("onnx", "onnxruntime")
