"""`upgrade_net_proto_binary IN OUT`: writes weights of any form as a caffemodel of today's (as Caffe's tool)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mgcaffe.prototxt import NetSource, read_net_source, write_binary
from mgcaffe.tools.upgrading import upgrade_file


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    what = (
        "a net with its weights in any form that Caffe ever had, also with tables in a snapshot's shards beside it,\n"
        "and writes it in one binary file in today's"
    )
    return upgrade_file("upgrade_net_proto_binary", what, _read, write_binary, arguments)


def _read(path: str, strict: bool) -> NetSource:
    source = read_net_source(path, strict=strict)
    if any(blob.HasField("shards") for layer in source.param.layer for blob in layer.blobs):
        from mgcaffe.engine.weights.files import fill_from_shards

        fill_from_shards(source.param, path)
    return source


if __name__ == "__main__":
    sys.exit(main())
