"""Every test here needs safetensors, and what it shares with the tests of ONNX needs onnx."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("safetensors")
