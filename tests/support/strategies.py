"""Hypothesis strategies that fill any message of the schema."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mgcaffe.prototxt import message_class
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.schema import FieldFacts

SCALARS = {
    "string": st.text(alphabet=st.characters(codec="utf-8"), max_size=12),
    "bytes": st.binary(max_size=12),
    "bool": st.booleans(),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
}


def _scalar(facts: FieldFacts) -> st.SearchStrategy[Any]:
    if facts.kind == "integer":
        return st.integers(facts.low, facts.high)
    if facts.kind == "enum":
        assert facts.enum is not None
        return st.sampled_from(sorted(facts.enum.names))
    return SCALARS[facts.kind]


@st.composite
def messages(draw: st.DrawFn, name: str, depth: int = 3) -> Any:
    """Draws a message of the named type, with messages inside it down to a depth."""
    message = message_class(name)()
    facts = message_facts(message)
    usable = [f for f in facts.fields.values() if f.kind != "message" or depth > 0]
    chosen = draw(st.lists(st.sampled_from(usable), max_size=5, unique_by=lambda f: f.name)) if usable else []
    chosen += [f for f in facts.fields.values() if f.required and f not in chosen]
    for field in chosen:
        if field.kind == "message":
            assert field.message is not None
            inner = messages(field.message.full_name.removeprefix("caffe."), depth - 1)
            if field.repeated:
                getattr(message, field.name).extend(draw(st.lists(inner, max_size=2)))
            else:
                getattr(message, field.name).CopyFrom(draw(inner))
        elif field.repeated:
            getattr(message, field.name).extend(draw(st.lists(_scalar(field), max_size=3)))
        else:
            setattr(message, field.name, draw(_scalar(field)))
    return message
