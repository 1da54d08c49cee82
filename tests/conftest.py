"""One computing thread for the tests and the processes that they start, unless the user says otherwise.

The tests' tensors are small, and idle OpenMP threads take the cores that ranks and data threads need.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
