"""The heavy operations: for each one a function that picks the fastest way for the tensors at hand.

A layer calls `convolution.forward`, `lrn.forward`, ... and never asks which library computes. Every operation
has one general way, plain ATen, that serves float64, CUDA and any other processor, and zero or more fast ways
for float32 on a CPU. The choice depends on shapes, types and formats alone, so the same inputs give the same
bits run after run. All functions are free of state and of autograd.
"""
