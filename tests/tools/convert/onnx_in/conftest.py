"""Every test here needs onnx and onnxruntime."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
