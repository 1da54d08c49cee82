"""`upgrade_net_proto_binary IN OUT`: writes weights of any form as a caffemodel of today's (as Caffe's tool)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgcaffe.prototxt import read_net_source, write_binary
from mgcaffe.tools.upgrading import upgrade_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    what = "a net with its weights in any form that Caffe ever had, and writes it in binary in today's"
    return upgrade_file("upgrade_net_proto_binary", what, read_net_source, write_binary, arguments)


if __name__ == "__main__":
    sys.exit(main())
