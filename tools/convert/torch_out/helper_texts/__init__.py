"""The texts of `helpers.py`, by kind."""
