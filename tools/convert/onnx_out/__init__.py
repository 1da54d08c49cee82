"""Exports a net as an ONNX model: `operators.py` has the table of layer types, `export.py` goes through a net."""
