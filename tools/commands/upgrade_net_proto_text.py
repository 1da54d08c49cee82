"""`upgrade_net_proto_text IN OUT`: writes a net of any form as a prototxt of today's (as Caffe's tool of that name)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgcaffe.prototxt import read_net_source, write_text
from mgcaffe.tools.upgrading import upgrade_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    what = "a net written in any form that Caffe ever had, and writes it as text in today's"
    return upgrade_file("upgrade_net_proto_text", what, read_net_source, write_text, arguments)


if __name__ == "__main__":
    sys.exit(main())
