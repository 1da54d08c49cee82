"""Command-line flags as Caffe's users write them, and help that is there at once.

Each flag can be written `--solver x`, `--solver=x`, `-solver x` or `-solver=x`, its words joined by `_` or
`-`; the file that a subcommand is about can stand alone as well. As with gflags, the word after a flag is its
value whatever it begins with, so `--iterations -1` reaches the check that explains what is wrong with it. glog's
`-logtostderr` and `-alsologtostderr`, which scripts for Caffe give, ask for what every command does anyway.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mgcaffe.errors import UsageError
from mgcaffe.errors.file_names import shown_name, what_is_wrong_with_name

Flags = argparse.Namespace

MAX_INT32, MAX_INT64 = 2**31 - 1, 2**63 - 1
# What the help calls a value that is the name of a file or a folder.
_PATHS = ("FILE", "FILES", "DIR")
# Flags of glog that change nothing here: log lines always go to standard error.
_LOGS_TO_STDERR = ("logtostderr", "alsologtostderr")


class FlagParser(argparse.ArgumentParser):
    """The flags of one subcommand.

    Args:
        command: the subcommand's name.
        summary: one sentence for the top of its help.
        subject: the flag that may be given without its name (`solver` or `model`), if any.
        epilog: examples for the end of its help.
        files: for a subcommand that takes files in order instead: what its help calls them. The result has
            them in `files`.
        alone: it is no subcommand of `engine` but a command of its own.
    """

    def __init__(
        self,
        command: str,
        summary: str,
        subject: str | None = None,
        epilog: str = "",
        files: Sequence[str] = (),
        alone: bool = False,
    ) -> None:
        subject_usage = f" [--{subject}] FILE" if subject else "".join(f" {name}" for name in files)
        super().__init__(
            prog=command if alone else f"engine {command}",
            usage=f"{command if alone else f'engine {command}'}{subject_usage} [flags]",
            description=summary,
            epilog=f"{epilog}\n\nFlags may be written with one dash or two, and with '=' or a space.".strip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.command = command
        self.subject = subject
        self._takes_files = bool(files)
        self._takes_value: dict[str, bool] = {"help": False, "h": False}
        self._settings: set[str] = set()
        self._short: dict[str, str] = {}
        self._fields: dict[str, str] = {}
        self._path_flags = {subject} if subject else set()

    def flag(self, name: str, help_text: str, short: str = "", **options: Any) -> None:
        """Add a flag that takes a value (argparse's `type`, `default`, `choices`, `metavar`).

        Args:
            name: in full.
            help_text: what it is for.
            short: a letter that stands for the name.
            options: argparse's.
        """
        self._takes_value[name] = True
        if short:
            self._takes_value[short] = True
            self._short[short] = name
        if options.get("metavar") in _PATHS:
            self._path_flags.add(name)
        default = options.get("default")
        shown = f" (default: {default})" if default not in (None, "", (), []) else ""
        names = [f"-{short}", f"--{name}"] if short else [f"--{name}"]
        action = self.add_argument(*names, help=help_text.replace("%", "%%") + shown, **options)
        self._fields[f"--{name}"] = action.dest

    def switch(self, name: str, help_text: str, **options: Any) -> None:
        """Add a flag that takes none."""
        self._takes_value[name] = False
        action = self.add_argument(f"--{name}", help=help_text, **{"action": "store_true", **options})
        self._fields[f"--{name}"] = action.dest

    def setting(self, name: str, help_text: str) -> None:
        """Add a switch of which `=false` means something too; None where it is not given."""
        self._takes_value[name] = False
        self._settings.add(name)
        self.add_argument(
            f"--{name}", help=help_text, nargs="?", type=_true_or_false, metavar="false"
        )  # fmt: skip

    def parse(self, arguments: Sequence[str]) -> Flags:
        """Read a command line.

        Of the result, `words` is that line in one spelling, for those who hand it on, and `given` has the flag that
        gave a value, by the value's name (`--best` gives `snapshot_best`).

        Raises:
            UsageError: an unknown flag (names the nearest one), a bad value, a stray word.
            SystemExit: with code 0, after `--help`.
        """
        words, stray = self._normalised(list(arguments))
        flags = self.parse_args(words)
        flags.words = [*words, *stray]
        names = [word.partition("=")[0] for word in words]
        flags.given = {self._fields[name]: name for name in names if name in self._fields}
        if self._takes_files:
            flags.files = stray
        if self._takes_files or not stray:
            self._check_paths(flags)
            return flags
        if self.subject is None or len(stray) > 1:
            raise UsageError(f"unexpected argument '{stray[-1]}'", hint=f"see '{self.prog} --help' for the flags")
        if getattr(flags, self.subject) not in (None, stray[0]):
            raise UsageError(
                f"two files for --{self.subject}: '{getattr(flags, self.subject)}' and '{stray[0]}'",
                hint="give one of them",
            )
        setattr(flags, self.subject, stray[0])
        self._check_paths(flags)
        return flags

    def _check_paths(self, flags: Flags) -> None:
        """Refuse what no file can be called."""
        given = {f"--{name}": getattr(flags, name, None) for name in self._path_flags}
        for name, value in {**given, "the file": getattr(flags, "files", None)}.items():
            for path in value if isinstance(value, list) else [value]:
                if isinstance(path, str) and (problem := what_is_wrong_with_name(path)):
                    raise UsageError(f"{name} is '{shown_name(path)}': {problem}")

    def error(self, message: str) -> NoReturn:
        """Turn argparse's own complaints into ours."""
        raise UsageError(message.removeprefix("argument "), hint=f"see '{self.prog} --help' for the flags")

    def _normalised(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Return the words as `--name=value`, and those that belong to no flag."""
        flags: list[str] = []
        stray: list[str] = []
        while words:
            word = words.pop(0)
            if not word.startswith("-") or word == "-":
                stray.append(word)
                continue
            name, equals, value = word.lstrip("-").partition("=")
            name = name.replace("-", "_")
            if not equals and name not in self._takes_value and self._takes_value.get(name.removeprefix("no")) is False:
                name, equals, value = name.removeprefix("no"), "=", "false"  # as gflags has it
            if name.removeprefix("no") in _LOGS_TO_STDERR:
                if name.startswith("no") or (equals and value not in ("true", "1")):
                    raise UsageError(f"log lines always go to standard error: leave out {word}")
                continue
            if name not in self._takes_value:
                self._refuse(word)
            if not self._takes_value[name]:
                if equals and value not in ("true", "false"):
                    raise UsageError(f"--{name} takes no value, but '{value}' was given")
                if name in self._settings:
                    flags.append(f"--{name}={value or 'true'}")
                    continue
                if value == "false":
                    continue
                flags.append("-h" if name == "h" else f"--{name}")
                continue
            if not equals:
                if not words:
                    raise UsageError(f"--{name} needs a value")
                value = words.pop(0)
            if value == "--":  # argparse takes it for the end of the flags, and the flag for one without a value
                raise UsageError(f"--{name} needs a value, and '--' is none")
            flags.append(f"--{self._short.get(name, name)}={value}")
        return flags, stray

    def _refuse(self, word: str) -> NoReturn:
        flag = word.partition("=")[0]
        known = [name for name in self._takes_value if len(name) > 1]
        near = difflib.get_close_matches(flag.lstrip("-").replace("-", "_"), known, n=1, cutoff=0.5)
        guess = f"; did you mean '--{near[0]}'?" if near else ""
        raise UsageError(f"unknown flag '{flag}'{guess}", hint=f"see '{self.prog} --help' for the flags")


def _true_or_false(text: str) -> bool:
    return text == "true"


def words_list(text: str) -> list[str]:
    """`a,b` as a list; an empty text, as Caffe's scripts give for an unset stage, is an empty list."""
    return [word.strip() for word in text.split(",") if word.strip()]


def number_from(least: int, most: int = MAX_INT32) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` to `most`; Caffe's fields hold 32 bits."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
        if number < least:
            raise argparse.ArgumentTypeError(f"{number} is too small; {least} is the least")
        if number > most:
            raise argparse.ArgumentTypeError(f"{number} is too large; {most} is the most")
        return number

    return read


def positive_float(text: str) -> float:
    """Return a reader of numbers above zero."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def seconds(text: str) -> float:
    """Return a reader of numbers of seconds, 0 included."""
    try:
        number = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds") from None
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a time of 0 seconds or more")
    return number


def blob_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Read `data=1,3,227,227`, or `1,3,227,227` for every source without a name of its own (name `''`)."""
    name, equals, sizes = text.rpartition("=")
    try:
        shape = tuple(int(size) for size in sizes.replace("x", ",").split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1 or (equals and not name):
        raise argparse.ArgumentTypeError(f"'{text}' is not a shape like data=1,3,227,227")
    return name, shape


def require(flags: Flags, name: str, what: str) -> str:
    """Return the value of the flag that a subcommand cannot do without.

    Raises:
        UsageError: it was not given.
    """
    value = getattr(flags, name)
    if not value:
        raise UsageError(f"{what} is missing", hint=f"give its file: engine ... FILE, or --{name}=FILE")
    return str(value)
