"""One computing thread for the tests and the processes that they start, unless the user says otherwise; marks.

The tests' tensors are small, and idle OpenMP threads take the cores that ranks and data threads need.
"""

import os
import sys

import pytest

from tests.support.mpirun import MPIRUN
from tests.support.paths import ROOT

os.environ.setdefault("OMP_NUM_THREADS", "1")

MPI = ROOT / "tests" / "mpi"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all of tests/mpi as `mpi`, and skip what has this mark where there is no mpirun."""
    for item in items:
        if MPI in item.path.parents:
            item.add_marker(pytest.mark.mpi)
        if MPIRUN is None and item.get_closest_marker("mpi"):
            item.add_marker(pytest.mark.skip(reason=f"no mpirun beside {sys.executable}: pip install 'mgcaffe[mpi]'"))
