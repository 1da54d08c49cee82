"""Makes this package answer to the name `caffe`, submodules included."""

from __future__ import annotations

import importlib
import sys

SUBMODULES = (
    "classifier",
    "coord_map",
    "detector",
    "draw",
    "io",
    "net_spec",
    "proto",
    "proto.caffe_pb2",
)
# Names of pycaffe's files that hold nothing here but what the package itself offers.
FOLDED = ("pycaffe", "_caffe")


def install() -> None:
    """From now on `import caffe`, `import caffe.io`, `from caffe.proto import caffe_pb2` and so on find us."""
    package = importlib.import_module("mgcaffe.pycaffe")
    sys.modules["caffe"] = package
    for name in SUBMODULES:
        sys.modules[f"caffe.{name}"] = importlib.import_module(f"mgcaffe.pycaffe.{name}")
    for name in FOLDED:
        sys.modules[f"caffe.{name}"] = package
        setattr(package, name, package)
