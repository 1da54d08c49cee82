"""Files of weights whose values stay in them until they are wanted."""

from __future__ import annotations

import numpy as np
import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import BlobProto, NetParameter, V1LayerParameter, blob_array, fill_blob, read_net, write_binary
from mgcaffe.prototxt.stored import read_stored_net

VALUES = np.arange(600_000, dtype=np.float32).reshape(600, 1000)


def blob(values, diff=None):
    made = BlobProto()
    fill_blob(made, values)
    if diff is not None:
        fill_blob(made, diff, diff=True)
    return made


@pytest.fixture
def path(tmp_path):
    """A net with an input of the old form, which becomes a layer in front; large blobs and a small one."""
    net = NetParameter(name="net", input=["data"])
    net.input_shape.add(dim=[1, 3])
    net.layer.add(name="a", type="InnerProduct", bottom=["data"], top=["a"], blobs=[blob(VALUES, VALUES)])
    net.layer.add(
        name="b", type="Bias", bottom=["a"], top=["b"], blobs=[blob(VALUES[0, :5]), blob(VALUES.astype(float))]
    )
    write_binary(net, tmp_path / "net.caffemodel")
    return tmp_path / "net.caffemodel"


def test_values_are_read_where_the_file_has_them(path, monkeypatch):
    monkeypatch.setattr("mgcaffe.prototxt.stored._CHUNK", 250_000)
    stored, whole = read_stored_net(path), read_net(path)
    assert [layer.name for layer in stored.param.layer] == ["input", "a", "b"]
    assert set(stored.values) == {(1, 0), (2, 1)}
    for (layer, number), values in stored.values.items():
        expected = blob_array(whole.layer[layer].blobs[number])
        assert values.load().dtype == expected.dtype
        np.testing.assert_array_equal(values.load(), expected.reshape(-1))
        chunks = list(values.chunks())
        assert [len(chunk) for chunk in chunks] == [250_000, 250_000, 100_000]
        np.testing.assert_array_equal(np.concatenate(chunks), expected.reshape(-1))
        kept = stored.param.layer[layer].blobs[number]
        assert not (kept.data or kept.double_data or kept.diff) and list(kept.shape.dim) == [600, 1000]
    assert stored.param.layer[2].blobs[0] == whole.layer[2].blobs[0]


def test_the_form_before_2015_is_read_the_same_way(path):
    net = read_net(path)
    old = NetParameter(layers=[V1LayerParameter(name=each.name, blobs=each.blobs) for each in net.layer[1:]])
    write_binary(old, path)
    stored = read_stored_net(path)
    assert [layer.name for layer in stored.param.layer] == ["a", "b"] and set(stored.values) == {(0, 0), (1, 1)}


def test_damage_is_said_as_by_the_reader_of_whole_files(path):
    data = path.read_bytes()
    for damaged in (data[:-7], data[:20] + b"\xff" * 10 + data[30:]):
        path.write_bytes(damaged)
        said = []
        for read in (read_net, read_stored_net):
            with pytest.raises(PrototxtError) as caught:
                read(path)
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_a_file_that_became_shorter_is_an_error(path):
    stored = read_stored_net(path)
    path.write_bytes(path.read_bytes()[:2_000_000])
    with pytest.raises(PrototxtError, match=r"net\.caffemodel: this file has become shorter"):
        list(stored.values[1, 0].chunks())
    path.unlink()
    with pytest.raises(PrototxtError, match="cannot be read: No such file"):
        stored.values[1, 0].load()
