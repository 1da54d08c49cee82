"""What is said of exceptions of users' code, and what to do where it is for Python 2, or for packages of then."""

from __future__ import annotations

import importlib
import inspect
import linecache
import re
import string
import traceback
from pathlib import Path

from mgcaffe.errors import NetError, describe_exception

_PYTHON_2 = re.compile(
    r"Missing parentheses in call to|leading zeros in decimal integer|multiple exception types must be parenthesized"
    r"|>>: 'builtin_function_or_method'|dict' object has no attribute '(iteritems|itervalues|iterkeys|has_key)'"
    r"|dict_(keys|values|items)' object (is not subscriptable|has no attribute)"
    r"|unsupported operand type\(s\) for \+: '(dict_keys|dict_values|dict_items|range|map|zip)'"
    r"|name '(xrange|unicode|raw_input|basestring|long|unichr|execfile)' is not defined"
    r"|No module named '(cPickle|cStringIO|ConfigParser|Queue|StringIO|urllib2)'"
    r"|(cannot import name|module 'itertools' has no attribute) '(izip|izip_longest|imap|ifilter|ifilterfalse)'"
    r"|module 'sys' has no attribute 'maxint'|object of type '(map|filter|zip)' has no len"
    r"|'(range|map|filter|zip)' object (is not subscriptable|has no attribute|does not support item assignment)"
)
"""What Python 3 says of programs in Python 2, as most were that were written for pycaffe."""
_NO_WHOLE_NUMBER = re.compile(
    r"'float' object cannot be interpreted as an integer|can't multiply sequence by non-int of type 'float'"
    r"|'numpy.float64' object cannot be interpreted as an integer|slice indices must be integers"
    r"|list indices must be integers or slices, not float|only integers, slices .* are valid indices"
)
"""What Python 3 says of a quotient where it needs a whole number."""
_DIVISION = re.compile(r"(?<!/)/(?!/)")
_STRING = re.compile(r"\"[^\"]*\"|'[^']*'|#.*")
_PACKAGES = {"cv2": "opencv-python-headless", "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "PyYAML"}
"""Where modules come from that layers and scripts often import, by their names."""
_STRING_NAMES = {
    **{name: f"string.ascii_{name}" for name in ("letters", "lowercase", "uppercase")},
    "join": "SEPARATOR.join(WORDS)",
    "maketrans": "str.maketrans",
}
"""What stands in Python 3 for names of the module string that 2to3 leaves as they are."""
_LONG = re.compile(r"\b(0[xX][0-9a-fA-F]+|[0-9]+)[lL]\b")


def described(error: BaseException) -> str:
    """Return the exception in one line, and the lines of the user's code where it came from, innermost last.

    Lines of this package and of Python's import machinery are left out.
    """
    lines = [describe_exception(error)]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append(traceback.FrameSummary(error.filename, error.lineno, "<module>"))
    for frame in frames:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        code = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
        if code:
            lines.append(f"    {code}")
    return "\n".join(lines)


def old_program_hint(error: BaseException) -> str | None:
    """Return what to do about an exception that shows a program to be in Python 2 or for packages of then, or None."""
    text = describe_exception(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
        return f"install it for this Python: pip install {_PACKAGES[error.name]}"
    if text == "TypeError: load() missing 1 required positional argument: 'Loader'":
        return "yaml.load(TEXT) is of PyYAML before 6: write yaml.safe_load(TEXT)"
    if isinstance(error, AttributeError) and error.obj is string and error.name in _STRING_NAMES:
        return f"this is Python 2: write {_STRING_NAMES[error.name]} in place of string.{error.name}"
    if isinstance(error, TabError):
        return (
            "this is Python 2, where a tab stands for up to 8 spaces: expand FILE > NEW_FILE writes the program with"
            " spaces in place of tabs"
        )
    if _NO_WHOLE_NUMBER.search(text) and _DIVISION.search(_STRING.sub("", _last_line(error))):
        return "if this is Python 2, the division of whole numbers has to be written as //"
    has_long = isinstance(error, SyntaxError) and "invalid" in text and _LONG.search(_STRING.sub("", error.text or ""))
    if not has_long and not _PYTHON_2.search(text):
        return None
    return (
        "this is Python 2: 2to3 -w FILE, a program that comes with Python up to 3.12, makes Python 3 of it, except for"
        " the division of whole numbers, which has to be written as //"
    )


def _last_line(error: BaseException) -> str:
    """Return the line of the user's code that raised an exception; empty where no such line is known."""
    frames = traceback.extract_tb(error.__traceback__)
    return (frames[-1].line or "") if frames and not _is_ours(frames[-1].filename) else ""


def _is_ours(file: str) -> bool:
    if file.startswith("<frozen "):
        return True
    resolved = Path(file).resolve()
    packages = Path(__file__).resolve().parents[1]
    ours = any(resolved.is_relative_to(packages / name) for name in ("comm", "engine", "solvers", "pycaffe"))
    return ours or resolved == Path(inspect.getfile(importlib)).resolve()


def error_class(kind: type[BaseException]) -> type[NetError]:
    """Return a NetError that a user's own `except kind` catches too, as far as Python lets two classes be joined.

    A BaseException that is no Exception (SystemExit) becomes a plain NetError: what ends a process, a generator or a
    thread must not pass for that when it comes from a layer.
    """
    if issubclass(NetError, kind) or not issubclass(kind, Exception):
        return NetError
    try:
        joined = type("PythonLayerError", (NetError, kind), {"__doc__": "An exception of a layer in Python."})
        joined("")
    except Exception:
        # The user's class takes other arguments, or refuses a subclass.
        return NetError
    return joined
