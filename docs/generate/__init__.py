"""Writes docs/layers.md and docs/converting.md out of docstrings, the schema and the tables of operators."""
