"""The `engine` command: finds the subcommand, reads its flags, and runs it guarded.

Up to `run` nothing here imports torch or MPI, so help and mistakes in flags are answered at once.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import sys
from collections.abc import Sequence

from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.engine.checks import memory
from mgcaffe.errors import EXIT_OK, EXIT_USAGE, EngineError, UsageError
from mgcaffe.tools.running.command_lines import CommandLine, parsed
from mgcaffe.tools.running.process import calm_waiting_threads
from mgcaffe.tools.running.remaining_threads import end_without_threads
from mgcaffe.tools.running.session import Session

COMMANDS = {
    "train": "train a net, or go on training it",
    "test": "score a net on its test data",
    "time": "time each layer of a net, forward and backward",
    "draw": "draw a net as a page, SVG or PNG",
    "summary": "show a net's layers, shapes, parameters, arithmetic and memory",
    "plan": "predict every schedule for a net, an all-reduce's cost and a number of workers",
    "classify": "show the most probable classes of images",
    "edit": "change a net and its weights: deploy, fold, cut, rename, merge, other classes",
    "diff": "compare two nets, or two files of weights",
    "report": "make an HTML page of a training run: where its time went",
    "simulate": "predict speedups at any scale from a trace",
    "device_query": "show what this machine can compute on",
    "log": "read training logs into tables and plots",
    "convert": "convert a model to another format, and prove that it computes the same",
    "compare": "compare two models of any formats, blob by blob",
    "convert_imageset": "write an LMDB of images, from a list, folders or tar archives",
    "convert_mnist_data": "write an LMDB of MNIST's files",
    "convert_mnist_siamese_data": "write an LMDB of random pairs of MNIST's images",
    "convert_cifar_data": "write LMDBs of CIFAR-10's files",
    "convert_criteo": "write an LMDB of rows in Criteo's format, or the dictionary of their values",
    "convert_leveldb": "write an LMDB of the records of a LevelDB",
    "compute_image_mean": "compute the mean image of a database",
    "extract_features": "write blobs of a net as LMDBs",
    "resize_and_crop_images": "cut squares of one size out of images",
    "check_lmdb": "check every page, record and sum of an LMDB",
}

# What Caffe has as programs and scripts of these names, pyproject.toml has as well, beside `engine`.
PROGRAMS = (
    "draw_net", "extract_seconds", "parse_log", "plot_training_log",
    "upgrade_net_proto_binary", "upgrade_net_proto_text", "upgrade_solver_proto_text",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code (design: errors)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    session = Session()
    process_ends = arguments is None
    try:
        code = run_guarded(lambda: _run(words, session), lambda: session.communicator, print_message=_speak)
    finally:
        session.close(process_ends=process_ends)
    if process_ends:
        end_without_threads(code)
    return code


def help_text() -> str:
    """Return what `engine --help` prints."""
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: engine COMMAND [FILE] [flags]\n\n"
        "Trains Caffe models, on one process or under mpirun or torchrun with merged-gradient all-reduce.\n\n"
        f"commands:\n{commands}\n\n"
        "'engine COMMAND --help' shows a command's flags; 'engine --version' the version.\n\n"
        "examples:\n"
        "  engine train solver.prototxt\n"
        "  mpirun -n 4 engine train solver.prototxt --schedule=optimal\n"
        "  engine test --model net.prototxt --weights net_iter_500.caffemodel\n"
    )


def _run(words: list[str], session: Session) -> int:
    """Answer a command line; a rank that does so without the others lets them know."""
    session.command_line = CommandLine(" ".join(words))
    try:
        code = _answer(words, session)
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not error.code and session.communicator is not None:
            # The run would pass for complete, and other ranks would wait for this one for ever.
            raise EngineError("sys.exit was called before the end of the run") from error
        session.leave(failed=not isinstance(error, SystemExit) or bool(error.code))
        raise
    session.leave(failed=code != EXIT_OK)
    return code


def _answer(words: list[str], session: Session) -> int:
    if not words:
        print(help_text())
        return EXIT_USAGE
    if words[0].lstrip("-") in ("help", "h") and len(words) == 1:
        print(help_text())
        return EXIT_OK
    if words[0] in ("--version", "-version"):
        print(f"engine {importlib.metadata.version('mgcaffe')}")
        return EXIT_OK
    name = words[0]
    if name not in COMMANDS:
        hint = f"run it without 'engine': {name} --help" if name in PROGRAMS else "see 'engine --help'"
        raise UsageError(_unknown_command(name), hint=hint)
    calm_waiting_threads()
    command = importlib.import_module(f"mgcaffe.tools.commands.{name}")
    parser = command.parser()
    try:
        flags = parser.parse(words[1:])
        session.command_line = parsed(words, parser, flags)
        code: int = command.run(flags, session)
    except (MemoryError, RuntimeError) as error:
        if not memory.is_about_memory(error):
            raise
        raise EngineError(f"out of memory{memory.asked_for(error)}", hint=memory.HINT) from error
    return code


def _unknown_command(name: str) -> str:
    if name.startswith("-"):
        return f"'{name}' stands where the command belongs, one of {', '.join(COMMANDS)}"
    if name in PROGRAMS:
        return f"'{name}' is a program of its own"
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    guess = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(COMMANDS)}"
    return f"unknown command '{name}'{guess}"


def _speak(message: str) -> None:
    """Print the guard's message; after a bug in mgcaffe, with its traceback, ask for a report of it."""
    report = "\nThis is a bug in mgcaffe: please report it with the lines above."
    say(f"error: {message}{report if 'internal error: ' in message else ''}")


if __name__ == "__main__":
    sys.exit(main())
