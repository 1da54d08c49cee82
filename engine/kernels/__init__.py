"""The heavy operations: for each one a function that picks a fast way for the tensors at hand.

A layer calls `convolution.forward`, `lrn.forward`, ... and never asks which library computes. Every operation
has one general way, plain ATen, that serves float64, CUDA and any other processor, and zero or more fast ways
for float32 on a CPU. By rule the choice depends on shapes, types, formats and the class of processor alone,
so the same inputs give the same bits run after run. Convolutions and inner products name their ways, and take the one
that was measured to be fastest where the net's layers are given such choices (`choice/`). All functions are free of
state and of autograd.
"""
