"""`engine extract_features`: blobs of a net as LMDBs, a record an image (Caffe: tools/extract_features.cpp).

Keys are `%010d`; a record has channels, height, width and float_data. A blob with fewer than four axes has ones for the
missing ones, as everywhere in Caffe's old form: 10 x 4096 becomes records of 4096 x 1 x 1.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, NetError, UsageError
from mgcaffe.tools.datasets.command_line import check_backend, take_names
from mgcaffe.tools.flags.net_flags import add_state_flags
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, words_list
from mgcaffe.tools.listeners.glog import log_line, start_logging
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    import torch

    from mgcaffe.engine.data.lmdb.writer import LmdbWriter
    from mgcaffe.engine.net import Net

_NAMES = (
    *("WEIGHTS", "NET", "BLOB[,BLOB...]", "DB_NAME[,DB_NAME...]", "NUM_MINI_BATCHES", "DB_TYPE"),
    *("[CPU|GPU]", "[DEVICE_ID]"),
)
_TELL_EVERY = 1000
_MOST_AXES = 4


def parser() -> FlagParser:
    """Return the flags of `engine extract_features`."""
    flags = FlagParser(
        "extract_features",
        "Run a net in phase TEST and write blobs of it as LMDBs, a record of floats for each image.\nDB_TYPE is lmdb.",
        files=_NAMES,
        epilog=(
            "example:\n"
            "  engine extract_features net.caffemodel train_val.prototxt fc7,prob fc7_lmdb,prob_lmdb 10 lmdb GPU 0"
        ),
    )
    add_state_flags(flags)
    flags.flag("threads", "compute threads; otherwise OMP_NUM_THREADS, or all cores", type=number_from(1), metavar="N")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Run the batches and write the databases."""
    session.refuse_ranks("extract_features")
    words = take_names(flags, "extract_features", *_NAMES)
    weights, model = words[:2]
    blobs, targets = words_list(words[2]), words_list(words[3])
    batches = _batches(words[4])
    check_backend(words[5])
    if len(blobs) != len(targets) or not blobs:
        raise UsageError(
            f"{len(blobs)} blobs ({words[2]}) and {len(targets)} databases ({words[3]}) are named",
            hint="give as many of both, separated by commas without spaces",
        )
    gpu = _gpu(words[6:])
    start_logging(speaks=True)
    with loading():
        from mgcaffe.engine.data.lmdb.writer import LmdbWriter
        from mgcaffe.tools.model import build_net
        from mgcaffe.tools.running.loaded_net import load
        from mgcaffe.tools.running.process import pick_device, set_threads, speed_up_memory

    speed_up_memory()
    set_threads(flags.threads, 1)
    device = pick_device(gpu, flag="GPU")
    log_line("Using CPU" if device.type == "cpu" else f"Using GPU, Device_id={device.index}")
    net = build_net(flags, model, "TEST", device=device)
    try:
        _check_blobs(net, blobs, model)
        load(net, [weights])
        with ExitStack() as stack:
            writers = []
            for target in targets:
                log_line(f"Opening dataset {target}")
                writers.append(stack.enter_context(LmdbWriter(target)))
            log_line("Extracting Features")
            for _ in range(batches):
                net.forward()
                for blob, writer in zip(blobs, writers, strict=True):
                    _write(writer, net, blob)
        for blob, writer in zip(blobs, writers, strict=True):
            _tell(writer, blob)
    finally:
        net.close()
    log_line("Successfully extracted the features!")
    return EXIT_OK


def _batches(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"NUM_MINI_BATCHES is '{text}'; it has to be a whole number above 0")
    return int(text)


def _gpu(words: list[str]) -> str | None:
    """Return the GPU that is asked for; None for the CPU."""
    if not words or words == ["CPU"]:
        return None
    if words[0] != "GPU":
        raise UsageError(f"'{' '.join(words)}' is no device", hint="give CPU, or GPU and its number")
    return words[1] if len(words) > 1 else "0"


def _check_blobs(net: Net, names: list[str], model: str) -> None:
    """Make sure that the net has these blobs, and that a record can hold them."""
    for name in names:
        if name not in net.blobs:
            raise NetError(
                f"Unknown feature blob name {name} in the network {model}", hint=f"its blobs are {', '.join(net.blobs)}"
            )
        shape = net.blobs[name].shape
        if not 1 <= len(shape) <= _MOST_AXES:
            raise NetError(
                f"blob '{name}' of {model} has {len(shape)} axes; a record holds those of a blob with 1 to {_MOST_AXES}"
            )


def _write(writer: LmdbWriter, net: Net, name: str) -> None:
    data = net.blobs[name].data
    assert data is not None  # all blobs are kept
    for values in data.detach().cpu():
        writer.put(b"%010d" % writer.count, feature_record(values))
        if writer.count % _TELL_EVERY == 0:
            _tell(writer, name)


def feature_record(values: torch.Tensor) -> bytes:
    """Return the Datum of an image's features.

    Args:
        values: of up to three axes: channels, height, width.
    """
    from mgcaffe.prototxt import Datum

    channels, height, width = (*values.shape, 1, 1, 1)[:3]
    datum = Datum(channels=channels, height=height, width=width)
    datum.float_data.extend(values.reshape(-1).tolist())
    return bytes(datum.SerializeToString(deterministic=True))


def _tell(writer: LmdbWriter, name: str) -> None:
    log_line(f"Extracted features of {writer.count} query images for feature blob {name}")
