"""Passes of layers captured as the calls of tensor functions that they make, and replayed without the layers' code.

With small images or batches most of a step is Python: shapes looked at, candidates chosen, arguments put together, the
same in every iteration. As a CUDA graph replays kernels, a replay here makes the calls alone, in the same order with
the same arguments, so its bits are those of the layers.

    recorder.py          notes down the calls that a piece of code makes
    program.py           makes functions of noted calls
    captured_pass.py     what was noted down of a pass, and the functions made of it
    captured_range.py    neighbouring layers whose passes are captured and replayed
    replayed_pass.py     a net's pass, which replays what it can: what the solver runs
"""
