"""The form that the docstring of every layer's module has, and its parts.

    Type: what it does, in one line. (Type, OtherType: ... where one class answers to several names.)

        the formula

    Whatever else there is to say.

    Fields of `some_param` (default): name (value), ...      or: No fields.
    Bottoms: their shapes.                                   or: No bottoms.
    Tops: their shapes.                                      or: No tops.
    Parameters: their shapes, in their order.                left away where there are none
    Differences from Caffe: what and why.                    or: No differences from Caffe.
    (Caffe: the_source.cpp.)

Every part begins a sentence, so parts may share a line. `Bottom:`, `Top:` and `Parameter:` do as well, and a layer
that reads several messages has a `Fields of` part for each.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LABELS = re.compile(
    r"(?:(?<=[.)] )|^)(?:"
    r"Fields of `(?P<message>\w+)`(?: \(default\))?: "
    r"|(?P<label>Bottoms?|Tops?|Parameters?|Differences from Caffe): "
    r"|(?P<none>No (?:fields|bottoms|tops|parameters|differences from Caffe))\.(?: |$)"
    r"|(?P<source>\((?:[\w', -]+ )?Caffes?(?:'s)?: )"
    r")"
)
_REFERENCE = re.compile(r"(?:those of|as for) ([A-Z]\w+)")


@dataclass(eq=False)
class LayerDoc:
    """A layer's docstring, taken apart.

    Attributes:
        names: the types that it is about.
        summary: one line.
        intro: formulas (every line begins with spaces) and paragraphs (one line each), in order.
        fields: by the name of the message, what its fields mean; empty where there are none.
        bottoms, tops, parameters: what is said of them; "none" where there are none.
        differences: from Caffe; "none" where there are none.
        source: where the semantics come from.
    """

    names: list[str]
    summary: str
    intro: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    bottoms: str = ""
    tops: str = ""
    parameters: str = ""
    differences: str = ""
    source: str = ""

    def named_like(self) -> list[str]:
        """Return the types whose fields this one's docstring refers to instead of saying them again."""
        return [name for text in self.fields.values() for name in _REFERENCE.findall(text)]


def parse_layer_doc(docstring: str) -> LayerDoc:
    """Take a docstring apart.

    Raises:
        ValueError: it has not the form that every layer's has; says what is missing.
    """
    head, _, rest = docstring.strip().partition("\n")
    names, colon, summary = head.partition(": ")
    if not colon:
        raise ValueError(f"the first line, '{head}', is not 'Type: what it does'")
    doc = LayerDoc([name.strip() for name in names.split(",")], summary)
    has_fields = False
    for block in re.split(r"\n\s*\n", rest.strip("\n")):
        if all(line.startswith("    ") for line in block.splitlines()):
            doc.intro.append(block)
            continue
        has_fields |= _read_paragraph(doc, " ".join(block.split()))
    missing = [name for name in ("bottoms", "tops", "differences", "source") if not getattr(doc, name)]
    if not has_fields:
        missing.insert(0, "fields")
    if missing:
        raise ValueError(f"the docstring of {names} does not say its {', '.join(missing)}")
    doc.parameters = doc.parameters or "none"
    return doc


def _read_paragraph(doc: LayerDoc, text: str) -> bool:
    """Add a paragraph's parts to the doc; say whether it is about fields."""
    found = list(_LABELS.finditer(text))
    before = text[: found[0].start()].strip() if found else text
    if before:
        doc.intro.append(before)
    about_fields = False
    ends = [*(match.start() for match in found[1:]), len(text)]
    for match, end in zip(found, ends, strict=False):
        about_fields |= _add_part(doc, match, text[match.end() : end].strip())
    return about_fields


def _add_part(doc: LayerDoc, match: re.Match[str], said: str) -> bool:
    message, label, none, source = match.group("message", "label", "none", "source")
    if message:
        doc.fields[message] = _joined(doc.fields.get(message, ""), said)
        return True
    if source:
        doc.source = (source + said).strip("().")
    elif none == "No fields":
        return True
    else:
        name = (label or none[3:]).split()[0].lower()
        name = name if name.endswith("s") else name + "s"
        said = "none" if none else said
        setattr(doc, name, _joined(getattr(doc, name), said))
    return False


def _joined(before: str, more: str) -> str:
    return f"{before}\n\n{more}" if before else more
