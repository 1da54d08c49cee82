"""Some of the damaged ONNX files; `python -m tests.soak onnx` runs all."""

import pytest

from tests.soak import damaged_onnx

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def test_every_damaged_onnx_file_becomes_a_net_or_is_refused_with_one_message():
    (row,) = damaged_onnx.run(full=False)
    assert row.cases == damaged_onnx.FEW
    assert not row.failures
    assert " code 0" in row.note and " code 65" in row.note
