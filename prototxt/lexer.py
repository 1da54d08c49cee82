"""Splits prototxt text into tokens, each with the place where it begins.

Bytes that are not UTF-8 arrive as surrogates (`errors="surrogateescape"`): inside a comment they are passed
over, since many a real file is commented in some other encoding, strings may hold them (foreign_text.py), and anywhere
else they are an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property

from mgcaffe.errors import Location, PrototxtError

_BLANK = re.compile(r"(?:[ \t\r\n\f\v]+|#[^\n\0]*)*")
_TOKEN = re.compile(
    r"""(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>\.?[0-9](?:[eE][+-]|[\w.])*)
      | (?P<string>"[^"\\\n\0]*(?:\\[^\n\0][^"\\\n\0]*)*"|'[^'\\\n\0]*(?:\\[^\n\0][^'\\\n\0]*)*')
      | (?P<mark>[{}<>\[\]:;,\-])
      | (?P<end>\Z)""",
    re.VERBOSE | re.ASCII,
)
_EXCERPT = 110


class SourceText:
    """A text, and the file that it came from. Places are offsets until somebody asks for line and column.

    Args:
        file: what to call the text in messages.
        text: the text itself, or None for a binary file, all of whose places are the file as a whole.
    """

    def __init__(self, file: str, text: str | None) -> None:
        self.file = file
        self.text = text

    @cached_property
    def _line_starts(self) -> list[int]:
        text = self.text or ""
        return [0, *(match.end() for match in re.finditer("\n", text))]

    def location(self, offset: int) -> Location:
        """Say in which line and column an offset lies."""
        if self.text is None:
            return Location(self.file)
        line = bisect_right(self._line_starts, offset)
        return Location(self.file, line, offset - self._line_starts[line - 1] + 1)

    def excerpt(self, offset: int) -> str:
        """Show the line around an offset, with a caret under the place."""
        if self.text is None:
            return ""
        # No further than is shown: lines can be as long as the file.
        nearest = max(0, offset - _EXCERPT)
        start = max(nearest, self.text.rfind("\n", nearest, offset) + 1)
        end = self.text.find("\n", offset, offset + _EXCERPT)
        end = len(self.text) if end < 0 else end
        if offset - start > _EXCERPT // 2:
            start = offset - _EXCERPT // 2
        line = _printable(self.text[start : min(end, start + _EXCERPT)])
        indent = "".join("\t" if character == "\t" else " " for character in line[: offset - start])
        return f"  {line.rstrip()}\n  {indent}^"

    def error(self, message: str, offset: int, hint: str | None = None) -> PrototxtError:
        """Make the error for something wrong at an offset."""
        excerpt = self.excerpt(offset)
        full = f"{message}\n{excerpt}" if excerpt else message
        return PrototxtError(full, location=self.location(offset), hint=hint)


def _printable(line: str) -> str:
    return "".join(c if c == "\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


class Lexer:
    """Reads tokens one at a time: `kind`, `token` and `offset` describe the current one.

    `kind` is name, number, string, mark or end; `token` is the text as it stands in the file.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._text = source.text or ""
        self._next = 1 if self._text.startswith("\N{ZERO WIDTH NO-BREAK SPACE}") else 0
        self.kind = ""
        self.token = ""
        self.offset = 0
        self.advance()

    def advance(self) -> None:
        """Move on to the next token.

        Raises:
            PrototxtError: the text goes on with something that begins no token.
        """
        blank = _BLANK.match(self._text, self._next)
        assert blank is not None, "an empty blank always matches"
        self.offset = blank.end()
        match = _TOKEN.match(self._text, self.offset)
        if match is None:
            raise self._unreadable()
        self.kind = match.lastgroup or ""
        self.token = match.group()
        self._next = match.end()

    def accept(self, mark: str) -> bool:
        """Step over the current token if it is this mark, and say whether it was."""
        if self.kind == "mark" and self.token == mark:
            self.advance()
            return True
        return False

    def skip_past(self, mark: str) -> str | None:
        """Move behind the next `mark` in the same line, and give all that it stepped over, or None."""
        start = self.offset
        line_end = self._text.find("\n", start)
        end = self._text.find(mark, start, len(self._text) if line_end < 0 else line_end)
        if end < 0:
            return None
        self._next = end + 1
        self.advance()
        return self._text[start : end + 1]

    def found(self) -> str:
        """Name the current token for a message."""
        if self.kind == "end":
            return "the end of the file"
        token = self.token if len(self.token) <= 40 else self.token[:37] + "..."
        shown = _printable(token)
        return f"the string {shown}" if self.kind == "string" else f"'{shown}'"

    def _unreadable(self) -> PrototxtError:
        character = self._text[self.offset]
        if character in "\"'":
            line_end = self._text.find("\n", self.offset)
            nul = self._text.find("\0", self.offset, len(self._text) if line_end < 0 else line_end)
            if nul < 0:
                return self.source.error("this string is not closed before the end of its line", self.offset)
            return self.source.error("a NUL byte stands in a string", nul, "Is this a binary file?")
        if character == "\0":
            return self.source.error("a NUL byte stands in the text", self.offset, "Is this a binary file?")
        if "\udc80" <= character <= "\udcff":
            message = f"the byte 0x{ord(character) - 0xDC00:02x} is not UTF-8 text"
            return self.source.error(message, self.offset, "Save the file as UTF-8.")
        shown = character if character.isprintable() else f"U+{ord(character):04X}"
        is_comment = self._text.startswith(("//", "/*", "%"), self.offset)
        hint = "Every line of a comment begins with #." if is_comment else None
        return self.source.error(f"unexpected character '{shown}'", self.offset, hint)
