"""What is loaded at once is looked at by no garbage collection, where a process has just begun."""

import gc
import json
import subprocess
import sys

from mgcaffe.tools.running.loading import loading
from tests.support.paths import ROOT

PROGRAM = """
import gc, json, sys
from mgcaffe.tools.running.loading import loading
collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
with loading():
    before = len(collections)
    import torch
    during = len(collections) - before
frozen = gc.get_freeze_count()
with loading():
    import torch
print(json.dumps([during, frozen > 100_000, gc.isenabled(), gc.get_freeze_count() == frozen]))
"""


def test_a_process_that_loads_pytorch_collects_nothing_meanwhile_and_little_later():
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(result.stdout) == [0, True, True, True]


def test_where_pytorch_is_loaded_garbage_stays_garbage():
    before = gc.get_freeze_count()
    with loading():
        assert gc.isenabled()
    assert gc.get_freeze_count() == before and gc.isenabled()
