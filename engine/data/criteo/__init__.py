"""Criteo's format of click-through-rate data: rows of text, their values, and the files that hold them."""
