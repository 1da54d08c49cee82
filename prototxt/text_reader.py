"""Reads prototxt text into protobuf messages, with the place of every field and errors that show it.

protobuf's own text reader either stops at the first unknown field or drops it without a warning, and forgets
where things stood; this one does neither. It accepts what protobuf's does: comments, both kinds of quotes,
adjacent strings, a colon before a brace or none, `<...>` for `{...}`, `[a, b]` for repeated fields, and
commas or semicolons between fields.
"""

from __future__ import annotations

from typing import NoReturn, TypeVar

from google.protobuf.message import Message

from mgcaffe.prototxt.foreign_text import ForeignText
from mgcaffe.prototxt.lexer import Lexer, SourceText
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.problems import Problem, Problems
from mgcaffe.prototxt.scalars import UnknownEnumValue, expected, read_scalar
from mgcaffe.prototxt.schema import SEVERAL_DEVICES, FieldFacts, MessageFacts
from mgcaffe.prototxt.source import Place, Source

_M = TypeVar("_M", bound=Message)
DEEPEST = 100
"""How many messages may lie inside one another."""
MAX_PROBLEMS = 10_000
_CLOSERS = {"{": "}", "<": ">"}


class TextReader:
    """Reads one text into one message. `read` does the work; `problems` then holds what was not known."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.problems = Problems()
        self._lexer = Lexer(source)
        self._depth = 0

    def read(self, message: Message) -> Place:
        """Fill a message with the whole text.

        Returns:
            The places of its fields.

        Raises:
            PrototxtError: the text is no prototxt, or does not fit the message.
        """
        place = Place(0)
        facts = message_facts(message)
        while self._lexer.kind != "end":
            self._read_field(message, facts, place, facts.full_name.rpartition(".")[2])
        self._check_required(message, facts, place, facts.full_name.rpartition(".")[2])
        return place

    def _fail(self, message: str, offset: int | None = None, hint: str | None = None) -> NoReturn:
        raise self.source.error(message, self._lexer.offset if offset is None else offset, hint)

    def _read_field(self, message: Message, facts: MessageFacts, place: Place, context: str) -> None:
        lexer = self._lexer
        start = lexer.offset
        if lexer.kind == "mark" and lexer.token == "[":
            name = self._read_extension_name()
        elif lexer.kind == "name":
            name = lexer.token
            lexer.advance()
        elif lexer.kind == "mark" and lexer.token in "}>":
            self._fail(f"'{lexer.token}' closes nothing that is open here")
        else:
            self._fail(f"expected the name of a field of {context}, found {lexer.found()}")
        field = facts.fields.get(name)
        if field is None:
            self._unknown_field(name, facts, context, start)
        else:
            self._read_known(message, field, place, context, start)
        if not lexer.accept(","):
            lexer.accept(";")

    def _read_known(self, message: Message, field: FieldFacts, place: Place, context: str, start: int) -> None:
        if not field.repeated and field.name in place.fields:
            first = self.source.location(place.fields[field.name][0].offset).line
            complaint = f"'{field.name}' is given twice in {context}, first in line {first}"
            self._fail(complaint, start, _hint_on_several(field))
        has_colon = self._lexer.accept(":")
        is_list = self._lexer.kind == "mark" and self._lexer.token == "["
        if not has_colon and field.kind != "message":
            self._fail(f"expected ':' after '{field.name}', found {self._lexer.found()}", hint=field.hint)
        if not is_list:
            self._read_value(message, field, place, start)
        elif field.repeated:
            self._read_list(message, field, place)
        else:
            complaint = f"{field.name}: expected {expected(field)}, found a list; it may be given only once"
            self._fail(complaint, hint=_hint_on_several(field))

    def _read_list(self, message: Message, field: FieldFacts, place: Place) -> None:
        lexer = self._lexer
        opening = lexer.offset
        lexer.advance()
        if lexer.accept("]"):
            return
        while True:
            self._read_value(message, field, place, lexer.offset)
            if lexer.accept("]"):
                return
            if lexer.kind == "end":
                self._fail(f"the '[' of '{field.name}' is never closed", opening)
            if not lexer.accept(","):
                self._fail(f"expected ',' or ']' in the list of '{field.name}', found {lexer.found()}")

    def _read_value(self, message: Message, field: FieldFacts, place: Place, start: int) -> None:
        if field.kind == "message":
            inner_place = Place(start)
            place.add(field.name, inner_place)
            inner = getattr(message, field.name)
            if field.repeated:
                inner = inner.add()
            else:
                inner.SetInParent()
            self._read_message(inner, field, inner_place)
            return
        try:
            value = read_scalar(self._lexer, field)
        except UnknownEnumValue as unknown:
            self._unknown_value(unknown, field)
        place.add(field.name, Place(start))
        if isinstance(value, ForeignText):
            self.problems.foreign.append((self.source.location(start), field.name, value))
        if field.repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)

    def _read_message(self, message: Message, field: FieldFacts, place: Place) -> None:
        assert field.message is not None
        lexer = self._lexer
        complaint = f"{field.name}: expected {expected(field)}, found {lexer.found()}"
        closer = self._open(field.name, complaint, field.hint)
        opening = lexer.offset
        lexer.advance()
        self._depth += 1
        while not lexer.accept(closer):
            if lexer.kind == "end":
                self._never_closed(field.name, opening)
            self._read_field(message, field.message, place, field.name)
        self._depth -= 1
        self._check_required(message, field.message, place, field.name)

    def _open(self, name: str, complaint: str, hint: str | None = None) -> str:
        """Check that a message begins here and may. Returns the mark that will close it."""
        closer = _CLOSERS.get(self._lexer.token) if self._lexer.kind == "mark" else None
        if closer is None:
            self._fail(complaint, hint=hint)
        if self._depth >= DEEPEST:
            self._fail(f"'{name}' lies inside {DEEPEST} other messages, which is too deep")
        return closer

    def _never_closed(self, name: str, opening: int) -> NoReturn:
        mark = self.source.text[opening] if self.source.text else "{"
        suspects = [p for p in self.problems.found if p.field in ("layer", "layers")]
        hint = None
        if suspects:
            line, inner = suspects[0].location.line, suspects[0].field
            hint = f"A '}}' seems to be missing before line {line}, where '{inner}' stands inside it."
        self._fail(f"the '{mark}' of '{name}' is never closed", opening, hint)

    def _check_required(self, message: Message, facts: MessageFacts, place: Place, context: str) -> None:
        for name in facts.required:
            if not message.HasField(name):
                self._fail(f"{context} needs '{name}', which is missing", place.offset)

    def _unknown_field(self, name: str, facts: MessageFacts, context: str, start: int) -> None:
        suggestion = self.problems.suggest(name, facts.fields)
        self._note(f"unknown field '{_short(name)}' in {context}", suggestion, name, start)
        has_colon = self._lexer.accept(":")
        is_message = self._lexer.kind == "mark" and self._lexer.token in "{<["
        if not has_colon and not is_message:
            message = f"expected ':' after '{_short(name)}', found {self._lexer.found()}"
            self._fail(message, hint=f"'{_short(name)}' is not a field of {context}.{suggestion}")
        self._skip_value(name)

    def _unknown_value(self, unknown: UnknownEnumValue, field: FieldFacts) -> NoReturn:
        assert field.enum is not None
        suggestion = self.problems.suggest(unknown.name, field.enum.numbers)
        known = ", ".join(field.enum.numbers) if len(field.enum.numbers) <= 8 else ""
        listed = f" (known: {known})" if known else ""
        message = f"unknown value '{_short(unknown.name)}' for {field.name}{listed}.{suggestion}"
        hint = None if "Did you mean" in suggestion else field.hint
        if "not supported" in suggestion:
            hint = "Leave the layer out, or write every layer as 'layer', which can be of type \"Python\"."
        if "its offset" in suggestion:
            hint = (
                "Write every layer as 'layer', and this one as type: \"Crop\" crop_param { axis: 2 offset: N }; crop()"
                " of pycaffe's coord_map works N out."
            )
        self._fail(message, unknown.offset, hint)

    def _note(self, message: str, suggestion: str, name: str, offset: int) -> None:
        if len(self.problems.found) >= MAX_PROBLEMS:
            self._fail(f"{message}; {MAX_PROBLEMS} such problems came before it, giving up", offset)
        location, excerpt = self.source.location(offset), self.source.excerpt(offset)
        self.problems.found.append(Problem(message, location, name, suggestion, excerpt, self._depth == 0))

    def _skip_value(self, name: str) -> None:
        """Step over the value of an unknown field, whatever it is."""
        lexer = self._lexer
        if lexer.kind == "mark" and lexer.token == "[":
            self._skip_list(name)
        elif lexer.kind == "mark" and lexer.token in "{<":
            self._skip_message(name)
        elif lexer.kind == "string":
            while lexer.kind == "string":
                lexer.advance()
        else:
            lexer.accept("-")
            if lexer.kind not in ("name", "number"):
                self._fail(f"expected a value for '{_short(name)}', found {lexer.found()}")
            lexer.advance()

    def _skip_list(self, name: str) -> None:
        lexer = self._lexer
        opening = lexer.offset
        lexer.advance()
        while not lexer.accept("]"):
            if lexer.kind == "end":
                self._fail(f"the '[' of '{_short(name)}' is never closed", opening)
            if lexer.kind == "mark" and lexer.token == "[":
                self._fail("a list lies inside a list")
            self._skip_value(name)
            lexer.accept(",")

    def _skip_message(self, name: str) -> None:
        lexer = self._lexer
        closer = self._open(name, "")
        opening = lexer.offset
        lexer.advance()
        self._depth += 1
        while not lexer.accept(closer):
            if lexer.kind == "end":
                self._never_closed(_short(name), opening)
            inner = lexer.token
            if lexer.kind == "mark" and inner == "[":
                self._read_extension_name()
            elif lexer.kind == "name":
                lexer.advance()
            else:
                self._fail(f"expected the name of a field of {_short(name)}, found {lexer.found()}")
            if not lexer.accept(":") and not (lexer.kind == "mark" and lexer.token in "{<["):
                self._fail(f"expected ':' after '{_short(inner)}', found {lexer.found()}")
            self._skip_value(inner)
            if not lexer.accept(","):
                lexer.accept(";")
        self._depth -= 1

    def _read_extension_name(self) -> str:
        """Step over `[package.extension]`, the name of a field that some other schema adds."""
        lexer = self._lexer
        opening = lexer.offset
        end = lexer.skip_past("]")
        if end is None:
            self._fail("the '[' of a field's name is never closed", opening)
        return end


def _hint_on_several(field: FieldFacts) -> str | None:
    """Return what to do where a field that has one value is given several; a hint on how it is written is none."""
    return field.hint if field.hint == SEVERAL_DEVICES else None


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."


def parse(text: str, message_class: type[_M], *, file: str = "<string>") -> tuple[_M, Source, Problems]:
    """Read prototxt text.

    Args:
        text: the text.
        message_class: the class of the message that it describes, such as NetParameter.
        file: what to call the text in messages.

    Returns:
        The message, where its fields stand, and what was unknown (which the caller reports).

    Raises:
        PrototxtError: the text is no prototxt, or does not fit the message.
    """
    source = SourceText(file, text)
    reader = TextReader(source)
    message = message_class()
    place = reader.read(message)
    return message, Source(source, place), reader.problems


def parse_text(text: str, message_class: type[_M], *, file: str = "<string>", strict: bool = False) -> _M:
    """Read prototxt text into a message, and warn of what it does not know.

    Args:
        text: the text.
        message_class: the class of the message that it describes, such as NetParameter.
        file: what to call the text in messages.
        strict: makes an unknown field an error.

    Returns:
        The message. Nothing in it is upgraded.

    Raises:
        PrototxtError: the text is no prototxt, does not fit the message, or has unknown fields under strict.
    """
    message, _, problems = parse(text, message_class, file=file)
    problems.report(strict)
    return message
