"""Trains under every schedule, as a rank under torchrun, and prints a sum of each one's weights.

Arguments: what `write_data` has written, and the device.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

from mgcaffe.comm.transport.connect import connect
from tests.support.schedules import train_under_every_schedule

if __name__ == "__main__":
    torch.cuda.set_device(sys.argv[2])
    weights = train_under_every_schedule(connect(), Path(sys.argv[1]), sys.argv[2])
    sums = {name: hashlib.sha256(values.numpy().tobytes()).hexdigest() for name, values in weights.items()}
    print("weights: " + json.dumps(sums), flush=True)
