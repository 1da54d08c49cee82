"""Exports a net as a module of PyTorch: `operators.py` has the table of layer types, `export.py` goes through a net."""
