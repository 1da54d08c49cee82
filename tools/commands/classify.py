"""`engine classify`: the classes that a net finds most probable for images (Caffe: classify.py, cpp_classification)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.computing_flags import add_machine_flags
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, positive_float
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.table import format_table

if TYPE_CHECKING:
    from mgcaffe.engine.types import Array
    from mgcaffe.tools.classifier import Preparation

_BGR = (2, 1, 0)


def parser() -> FlagParser:
    """Return the flags of `engine classify`."""
    flags = FlagParser(
        "classify",
        "Show the classes that a net finds most probable for images.\n"
        "An image is read as RGB from 0 to 1 (grey where the input has one channel), resized, cropped, put into the\n"
        "order of channels that the net wants, multiplied with raw_scale, freed of the mean, multiplied with\n"
        "input_scale. The defaults suit nets that were trained by Caffe on images without a mean.",
        files=("MODEL", "WEIGHTS", "IMAGE", "[IMAGE ...]"),
        epilog=(
            "examples:\n"
            "  engine classify deploy.prototxt net.caffemodel cat.jpg --mean_value 104,117,123 --labels words.txt\n"
            "  engine classify deploy.prototxt net.caffemodel *.jpg --mean_file mean.binaryproto --images_dim 256,256 "
            "--oversample\n"
            "  engine classify models/lenet/deploy.prototxt lenet.caffemodel seven.png --raw_scale 1"
        ),
    )
    flags.flag("labels", "the names of the classes, one a line", metavar="FILE")
    flags.flag("top", "how many classes to show", type=number_from(1), default=5, metavar="N")
    flags.flag("mean_file", "a mean image (.binaryproto or .npy), resized to the input where it is of another size",
               metavar="FILE")  # fmt: skip
    flags.switch("channel_mean", "of the mean image take the means of its channels, as cpp_classification does")
    flags.flag("mean_value", "a mean for each channel, in the net's order, or one for all", type=_numbers,
               metavar="B,G,R")  # fmt: skip
    flags.flag("raw_scale", "factor of the values before the mean is taken off: 255, or 1 for a net trained on 0 to 1",
               type=positive_float, default=255.0, metavar="X")  # fmt: skip
    flags.flag("input_scale", "factor after that", type=positive_float, default=1.0, metavar="X")
    flags.flag("channel_swap", "the order of the channels; 0,1,2 for nets that want RGB (default: 2,1,0, BGR)",
               type=_whole_numbers, metavar="ORDER")  # fmt: skip
    flags.flag("images_dim", "height and width that images are resized to, then cropped (default: the input's)",
               type=_size, metavar="H,W")  # fmt: skip
    flags.switch(
        "oversample", "score ten crops of each image (corners, centre, mirrored) and average; needs images_dim"
    )
    flags.flag("output", "the blob with the scores, for a net with several outputs", metavar="BLOB")
    flags.switch("strict", "refuse unknown fields in prototxt files instead of warning")
    flags.flag("json", "write the predictions to FILE", metavar="FILE")
    add_machine_flags(flags)
    return flags


def run(flags: Flags, session: Session) -> int:
    """Score the images and print a table for each; those that cannot be read are named, and the exit code is 65."""
    session.refuse_ranks("classify")
    _check(flags)
    from pathlib import Path

    with loading():
        from mgcaffe.prototxt import read_net_source
        from mgcaffe.tools.classifier import ImageClassifier, read_labels
        from mgcaffe.tools.commands.summary import write_json
        from mgcaffe.tools.running.process import dtype_named, pick_device, set_threads

    model, weights, *images = flags.files
    set_threads(flags.threads, 1)
    source = read_net_source(Path(model), strict=flags.strict)
    classifier = ImageClassifier(
        source, weights, _preparation(flags, source.param), output=flags.output, device=pick_device(flags.gpu),
        dtype=dtype_named(flags.dtype),
    )  # fmt: skip
    try:
        labels = read_labels(flags.labels, classifier.classes) if flags.labels else None
        document: list[dict[str, Any]] = []
        for image, scores in zip(images, classifier.scored(images), strict=True):
            if isinstance(scores, DataError):
                print(f"error: {scores}", file=sys.stderr)
                document.append({"file": image, "error": scores.message})
                continue
            rows = _best(scores, flags.top, labels)
            print(f"{image}\n{_table(rows)}\n", flush=True)
            document.append({"file": image, "predictions": rows})
    finally:
        classifier.close()
    if flags.json:
        write_json(flags.json, {"output": classifier.output, "images": document})
    return EXIT_BAD_INPUT if any("error" in row for row in document) else EXIT_OK


def _check(flags: Flags) -> None:
    if len(flags.files) < 3:
        raise UsageError(
            f"classify takes a net, its weights and images, not {len(flags.files)} file(s)",
            hint="engine classify MODEL WEIGHTS IMAGE [IMAGE ...]",
        )
    if flags.mean_file and flags.mean_value:
        raise UsageError("--mean_file and --mean_value exclude each other")
    if flags.channel_mean and not flags.mean_file:
        raise UsageError("--channel_mean goes with --mean_file")
    if flags.oversample and not flags.images_dim:
        raise UsageError("--oversample needs the size of the images to crop from", hint="--images_dim 256,256")


def _preparation(flags: Flags, net: Any) -> Preparation:
    """Return what the flags say is done to images; the net says how many channels they have."""
    import numpy as np

    from mgcaffe.tools.classifier import Preparation, read_mean

    channels = _channels(net)
    mean: Array | None = None
    if flags.mean_file:
        mean = read_mean(flags.mean_file)
        if flags.channel_mean and mean.ndim == 3:
            mean = mean.mean(axis=(1, 2))
    elif flags.mean_value:
        values = flags.mean_value * channels if len(flags.mean_value) == 1 else flags.mean_value
        mean = np.asarray(values, np.float32)
    swap = flags.channel_swap or (_BGR if channels == 3 else None)
    return Preparation(flags.images_dim, flags.oversample, swap, flags.raw_scale, mean, flags.input_scale)


def _channels(net: Any) -> int:
    """Return the channels of the first Input layer; ImageClassifier refuses a net without one."""
    for layer in net.layer:
        if layer.type == "Input" and layer.input_param.shape and len(layer.input_param.shape[0].dim) == 4:
            return int(layer.input_param.shape[0].dim[1])
    return 3


def _best(scores: Array, count: int, labels: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return the best classes of an image, the best first; equal ones in their order."""
    import numpy as np

    order = np.argsort(-scores, kind="stable")[:count].tolist()
    rows: list[dict[str, Any]] = [{"class": number, "score": float(scores[number])} for number in order]
    if labels is not None:
        for row in rows:
            row["label"] = labels[row["class"]]
    return rows


def _table(rows: Sequence[dict[str, Any]]) -> str:
    names = ("score", "class", "label") if rows and "label" in rows[0] else ("score", "class")
    texts = [(f"{row['score']:.4f}", str(row["class"]), row.get("label", ""))[: len(names)] for row in rows]
    return format_table(names, texts, right=("score", "class"))


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3) or not all(abs(number) < float("inf") for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is not one number, or three like 104,117,123")
    return numbers


def _whole_numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not an order of channels like 2,1,0")
    return tuple(int(word) for word in words)


def _size(text: str) -> tuple[int, int]:
    words = text.split(",")
    if len(words) != 2 or not all(word.strip().isdecimal() and 0 < int(word) <= 1 << 16 for word in words):
        raise argparse.ArgumentTypeError(f"'{text}' is not a height and a width like 256,256")
    return int(words[0]), int(words[1])
