"""Damages ONNX files and converts them: what comes of it is a net or one message that names the file.

A case is one of a few small models, as our exporter writes them, with the net in their metadata or without it, so that
their operators are read; its bytes are flipped or cut, or values of its messages are set to extremes or swapped. Then
`engine convert` has to make a net of it, proof included, or refuse it, and in each fifth case `engine compare` has to
run it: no traceback, no signal (also none in onnxruntime, which runs the damaged model), no hang. `SEED:CASE` of a
failure runs it again:

python -m tests.soak.damaged_onnx SEED FIRST LAST
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.soak import Row
from tests.soak.mutated_inputs import inside, limit_memory, limit_time, outcome
from tests.soak.mutations import mutate_bytes, mutate_fields, swap_values
from tests.support.netkit import inputs

NAME = "onnx"
CASES = 1000
FEW = 20
SEED = 13

Case = tuple[int, str, str]
"""Its number, what came of it (with `!` in front where it must not), and what it was."""

_FILE = "damaged.onnx"
_DIFFER = " differ by more than "
_PER_CHILD = 250
_CHILD_S = 300

_NETS = {
    "classic": inputs(x=(2, 4, 9, 9)) + (
        'layer { name: "conv" type: "Convolution" bottom: "x" top: "c" '
        "convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 2 } }"
        'layer { name: "norm" type: "BatchNorm" bottom: "c" top: "c" }'
        'layer { name: "scale" type: "Scale" bottom: "c" top: "c" scale_param { bias_term: true } }'
        'layer { name: "relu" type: "ReLU" bottom: "c" top: "c" }'
        'layer { name: "pool" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 3 stride: 2 } }'
        'layer { name: "lrn" type: "LRN" bottom: "p" top: "l" lrn_param { local_size: 3 } }'
        'layer { name: "ave" type: "Pooling" bottom: "p" top: "a" '
        "pooling_param { pool: AVE kernel_size: 3 stride: 1 pad: 1 } }"
        'layer { name: "cat" type: "Concat" bottom: "l" bottom: "a" top: "both" }'
        'layer { name: "drop" type: "Dropout" bottom: "both" top: "both" }'
        'layer { name: "ip" type: "InnerProduct" bottom: "both" top: "ip" inner_product_param { num_output: 3 } }'
        'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
    ),
    "shapes": inputs(x=(2, 6, 4, 5), y=(2, 6, 4, 5)) + (
        'layer { name: "sum" type: "Eltwise" bottom: "x" bottom: "y" top: "s" '
        "eltwise_param { coeff: 2 coeff: -1 } }"
        'layer { name: "cut" type: "Slice" bottom: "s" top: "a" top: "b" slice_param { slice_point: 2 } }'
        'layer { name: "prelu" type: "PReLU" bottom: "a" top: "a" }'
        'layer { name: "up" type: "Deconvolution" bottom: "b" top: "u" '
        "convolution_param { num_output: 4 kernel_size: 2 stride: 2 group: 2 } }"
        'layer { name: "shape" type: "Reshape" bottom: "a" top: "r" reshape_param { shape { dim: 0 dim: -1 } } }'
        'layer { name: "tanh" type: "TanH" bottom: "r" top: "t" }'
        'layer { name: "turn" type: "Permute" bottom: "u" top: "q" '
        "permute_param { order: 0 order: 2 order: 1 order: 3 } }"
        'layer { name: "power" type: "Power" bottom: "q" top: "z" power_param { scale: 0.5 shift: 1 } }'
    ),
    "written out": inputs(x=(3, 2, 4), cont=(3, 2), h=(1, 2, 3), c=(1, 2, 3)) + (
        'layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" bottom: "h" bottom: "c" '
        'top: "y" top: "hy" top: "cy" recurrent_param { num_output: 3 expose_hidden: true } }'
        'layer { name: "mvn" type: "MVN" bottom: "y" top: "m" }'
    ),
}  # fmt: skip


def run(full: bool) -> list[Row]:
    """All cases, in processes of their own; or a few of them in this one, which a signal would end."""
    row, began, outcomes = Row("damaged ONNX files", CASES if full else FEW), time.monotonic(), Counter[str]()
    for number, verdict, about in _in_children(row) if full else _in_this_process():
        outcomes[verdict] += 1
        if verdict.startswith("!"):
            row.failures.append(f"{SEED}:{number} {verdict[1:]}: {about}")
    row.note = ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()) if not what.startswith("!"))
    row.seconds = time.monotonic() - began
    return [row]


def _in_this_process() -> Iterator[Case]:
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGPROF)}
    limit_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield from _cases(SEED, 0, FEW)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_children(row: Row) -> Iterator[Case]:
    first = 0
    while first < CASES:
        lines, problem = _run_child(first, min(CASES, first + _PER_CHILD))
        yield from lines
        first = lines[-1][0] + 1 if lines else first
        if problem:
            row.failures.append(f"{SEED}:{first} {problem}")
            first += 1


def _run_child(first: int, last: int) -> tuple[list[Case], str]:
    """Run cases in another process; return the lines that it printed, and how it failed."""
    command = [sys.executable, "-m", "tests.soak.damaged_onnx", str(SEED), str(first), str(last)]
    problem = ""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        try:
            code = subprocess.run(command, stdout=out, stderr=errors, timeout=_CHILD_S, check=False).returncode
        except subprocess.TimeoutExpired:
            problem = f"hung for up to {_CHILD_S} s"
        else:
            errors.seek(0)
            problem = f"ended the process with {code}: {errors.read()[-300:]}" if code else ""
        out.seek(0)
        lines = [line.split("\t", 2) for line in out.read().splitlines() if line.count("\t") >= 2]
    return [(int(number), verdict, about) for number, verdict, about in lines], problem


def main(seed: int, first: int, last: int) -> None:
    """Print a line for each case: its number, what came of it, and what was damaged."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    limit_time()
    for case in _cases(seed, first, last, limited=True):
        print(*case, sep="\t", flush=True)


def _cases(seed: int, first: int, last: int, *, limited: bool = False) -> Iterator[Case]:
    from mgcaffe.tools import main as engine

    with tempfile.TemporaryDirectory() as name, inside(name):
        models = dict(_models(Path(name)))
        if limited:
            limit_memory()
        for number in range(first, last):
            numbers = random.Random(f"{seed}:{number}")
            model = numbers.choice(list(models))
            Path("whole.onnx").write_bytes(models[model])
            what, content = _damaged(models[model], numbers)
            Path(_FILE).write_bytes(content)
            command = ["convert", _FILE, "out.prototxt"] if number % 5 else ["compare", "whole.onnx", _FILE]
            verdict, text = outcome(engine.main, command, verdict=_DIFFER)
            verdict = "proof failed" if verdict == _DIFFER else verdict
            if verdict == "code 65" and _FILE not in text and number % 5:
                verdict = "!a message that does not name the file"
            shown = text.strip().replace("\n", " | ").replace("\t", " ")[-600:] if verdict[0] == "!" else ""
            yield number, verdict, f"{command[0]}, {model}, {what}: {shown}"


def _models(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Give every net as an ONNX file, and again without what says which net it was."""
    from tests.support.onnxkit import random_net, write

    for name, text in _NETS.items():
        model = write(random_net(text), folder / "whole.onnx")
        yield f"{name} with its net", model.SerializeToString()
        del model.metadata_props[:]
        yield name, model.SerializeToString()


def _damaged(content: bytes, numbers: random.Random) -> tuple[str, bytes]:
    """Return what was done to a file, and the file."""
    import onnx

    what = numbers.choice(("bytes", "bytes", "fields", "fields", "fields", "swapped", "flips"))
    if what == "bytes":
        return what, mutate_bytes(content, numbers)
    if what == "flips":
        flipped = bytearray(content)
        for _ in range(numbers.choice((1, 2, 20))):
            flipped[numbers.randrange(len(flipped))] ^= 1 << numbers.randrange(8)
        return what, bytes(flipped)
    model = onnx.ModelProto.FromString(content)
    target = model if numbers.random() < 0.2 else model.graph
    for _ in range(numbers.choice((1, 1, 2, 4))):
        (mutate_fields if what == "fields" else swap_values)(target, numbers)
    return what, model.SerializeToString()


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))
