"""`upgrade_solver_proto_text IN OUT`: writes a solver and the nets inside it as today's prototxt (as Caffe's tool)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgcaffe.prototxt import read_solver_source, write_text
from mgcaffe.tools.upgrading import upgrade_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    what = "a solver written in any form that Caffe ever had, and writes it as text in today's, nets inside it included"
    return upgrade_file("upgrade_solver_proto_text", what, read_solver_source, write_text, arguments)


if __name__ == "__main__":
    sys.exit(main())
