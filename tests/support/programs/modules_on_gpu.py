"""Trains a module behind slow kernels, as a rank under torchrun, and prints whether its weights are one rank's.

Argument: the device, which the ranks share.
"""

import sys

import torch

from mgcaffe.pytorch import MergedGradientParallel
from tests.gpu.test_modules import Slow, are_close, fresh, train, weights_of_one_rank

if __name__ == "__main__":
    device = torch.device(sys.argv[1])
    torch.distributed.init_process_group("gloo")
    module = (Slow(fresh()) if device.type == "cuda" else fresh()).to(device)
    model = MergedGradientParallel(module, calibration_iterations=2, listener=lambda _: None)
    weights = train(model, (torch.distributed.get_rank(),), device)
    print(f"close: {are_close(weights, weights_of_one_rank())}\n", end="", flush=True)
    model.close()
    torch.distributed.destroy_process_group()
