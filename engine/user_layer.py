"""What layers written in Python derive from, and how their modules are found (pycaffe: caffe.Layer).

class Double(caffe.Layer):
def reshape(self, bottom, top):
top[0].reshape(*bottom[0].shape)

def forward(self, bottom, top):
top[0].data[...] = 2 * bottom[0].data

def backward(self, top, propagate_down, bottom):
bottom[0].diff[...] = 2 * top[0].diff
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from mgcaffe.engine.host_blob import HostBlob, ParameterBlob
from mgcaffe.prototxt import LayerParameter, Phase

CAFFE_MODULE = "mgcaffe.caffe_module"
"""The entry point whose function lets users' modules `import caffe` and derive from our Layer."""


class BlobVector(list[ParameterBlob]):
    """The learnable blobs of a layer."""

    def __init__(self, add: Callable[[tuple[int, ...]], ParameterBlob]) -> None:
        super().__init__()
        self._add = add

    def add_blob(self, *sizes: int) -> None:
        """Declare the next learnable blob, of zeros until `data` is written; only in `setup`."""
        self.append(self._add(sizes))


class UserLayer:
    """Base of the layers that users write. They override the four methods.

    Attributes:
        param_str: `python_param.param_str`, for the layer to make sense of.
        phase: TRAIN (0) or TEST (1).
        blobs: the learnable blobs; `self.blobs.add_blob(10, 5)` in `setup` declares one.
        type: "Python".
        solver_rank, solver_count: this rank's number, and how many train in step: a layer that reads data has
            to read another part on each.
    """

    type = "Python"
    param_str: str
    phase: Phase
    blobs: BlobVector
    solver_rank: int = 0
    solver_count: int = 1

    def __init__(self, param: LayerParameter | None = None) -> None:
        """Take the LayerParameter message."""

    @property
    def param_str_(self) -> str:
        """`param_str` under the name that the first releases gave it."""
        return self.param_str

    def setup(self, bottom: Sequence[HostBlob], top: Sequence[HostBlob]) -> None:
        """Set the layer up; called once, when the net is made."""

    def reshape(self, bottom: Sequence[HostBlob], top: Sequence[HostBlob]) -> None:
        """Shape the tops; called when the net is made and before each forward."""
        raise NotImplementedError(f"{type(self).__name__} has no method reshape(self, bottom, top)")

    def forward(self, bottom: Sequence[HostBlob], top: Sequence[HostBlob]) -> None:
        """Fill the tops' data."""
        raise NotImplementedError(f"{type(self).__name__} has no method forward(self, bottom, top)")

    def backward(self, top: Sequence[HostBlob], propagate_down: Sequence[bool], bottom: Sequence[HostBlob]) -> None:
        """Fill the diffs of the bottoms that `propagate_down` asks for, and add to those of `self.blobs`."""
        raise NotImplementedError(f"{type(self).__name__} has no method backward(self, top, propagate_down, bottom)")


def load_module(name: str) -> ModuleType:
    """Import a user's module from PYTHONPATH or the folder where the command runs.

    Raises:
        ImportError and whatever the module itself raises.
    """
    if "caffe" not in sys.modules:
        for entry in importlib.metadata.entry_points(group=CAFFE_MODULE):
            entry.load()()
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.append(here)
    importlib.invalidate_caches()
    return importlib.import_module(name)
