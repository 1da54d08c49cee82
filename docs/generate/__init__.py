"""Writes docs/layers.md out of the layers' docstrings and the schema."""
