"""Ranks that are given unlike command lines, case after case; prints how each rank ended (`mpirun.parse_checks`).

Nothing is trained: the work behind the comparison is replaced, and each case has a session of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import sys
import types

from mgcaffe.errors import EngineError
from mgcaffe.tools import main
from mgcaffe.tools.commands import test, train
from mgcaffe.tools.running.session import Session

BASE = ["train", "solver.prototxt"]
VALUES = {
    "snapshot": "auto", "weights": "a.caffemodel", "solver": "elsewhere.prototxt", "emulate_link": "a=1e-3,b=1e-9",
    "H": "a:2", "timeline_iterations": "3:5",
}  # fmt: skip


def every_flag() -> dict[str, list[str]]:
    """A command line for each flag of `engine train`, which gives this flag a value that is not its default."""
    lines = {}
    parser = train.parser()
    for action in parser._actions:
        name = action.option_strings[0].lstrip("-")
        if name in ("h", "help"):
            continue
        default = parser.get_default(action.dest)
        if action.nargs == 0:
            word = f"--{name}"
        elif action.choices:
            word = f"--{name}={next(each for each in action.choices if each != default)}"
        else:
            word = f"--{name}={VALUES.get(name, 'false' if action.nargs == '?' else '3')}"
        lines[name] = ["train", word] if name == "solver" else [*BASE, word]
    return lines


CASES = {
    **{f"--{name}": (BASE, words) for name, words in every_flag().items()},
    "equal": (BASE, BASE),
    "default spelled out": ([*BASE, "--dtype=float32", "--stage="], ["train", "--solver=solver.prototxt"]),
    "both": ([*BASE, "--timeline=a"], [*BASE, "--timeline=b", "--snapshot_keep=2"]),
    "timeline on rank 0": ([*BASE, "--timeline=a"], BASE),
    "help": (BASE, [*BASE, "--help"]),
    "help on rank 0": (["--help"], BASE),
    "help on all": ([*BASE, "--help"], ["--help"]),
    "version": (BASE, ["--version"]),
    "nothing": (BASE, []),
    "unknown flag": (BASE, [*BASE, "--foo"]),
    "unknown flag on rank 0": ([*BASE, "--foo"], BASE),
    "unknown flags": ([*BASE, "--foo"], [*BASE, "--bar"]),
    "help and unknown flag": ([*BASE, "--help"], [*BASE, "--foo"]),
    "no solver": (BASE, ["train"]),
    "unknown command": (BASE, ["trainn", "solver.prototxt"]),
    "test": (BASE, ["test", "net.prototxt", "--weights=a"]),
    "summary": (BASE, ["summary", "net.prototxt"]),
    "iterations of a test": (["test", "a", "--weights=b"], ["test", "a", "--weights=b", "--iterations=2"]),
}


def run(words: list[str]) -> tuple[str, int]:
    """How a rank ends that is given these words, in one line, and its number."""
    session = Session()
    errors = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            code = main._run(list(words), session)
    except SystemExit as end:
        code = end.code or 0
    except EngineError as error:
        code = error.exit_code
        errors.write(str(error))
    finally:
        session.close()
    assert session.communicator is not None
    said = errors.getvalue().strip().replace("\n", " | ")
    return f"{code} {said}".strip(), session.communicator.rank


def replace_work() -> None:
    """Replaces what follows the comparison."""
    for name in ("training_run.train", "dry_run.dry_run"):
        module, _, function = name.partition(".")
        sys.modules[f"mgcaffe.tools.running.{module}"] = types.SimpleNamespace(**{function: lambda *given: 0})
    test.run = lambda flags, session: 0 if session.connect() else 1
    train.check_requeue = lambda snapshot: None


if __name__ == "__main__":
    from mgcaffe.comm.transport.environment import detect

    faulthandler.enable()  # before standard error is replaced
    replace_work()
    for name, lines in CASES.items():
        said, rank = run(lines[detect().rank])
        print(f"CHECK\t{name}\t{rank}\t{said}", flush=True)
