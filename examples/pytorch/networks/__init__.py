"""The modules that the examples of this folder and benchmarks/pytorch.py train, one a file, in plain PyTorch."""
