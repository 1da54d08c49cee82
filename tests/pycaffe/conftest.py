"""What the pycaffe tests share: each begins with the module functions' defaults and leaves no module behind."""

import sys

import pytest
import torch

from mgcaffe.pycaffe import mode


@pytest.fixture(autouse=True)
def _fresh_state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    modules, path = set(sys.modules), list(sys.path)
    mode.set_mode_cpu()
    mode._settings.seed = None
    yield
    torch.set_num_threads(threads)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.partition(".")[0] in ("caffe", "user_layers"):
            del sys.modules[name]
