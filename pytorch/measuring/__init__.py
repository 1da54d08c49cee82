"""Passes of any module, run and timed without changing the module; a trace of them."""
