"""Writes docs/layers.md, the page about every layer type, out of the layers' own docstrings, classes and schema.

`python -m docs.generate.catalogue` prints it, with `--write` it goes to docs/layers.md. A test fails until that has
been done after a change. What a layer's docstring has to say, and how, is in layer_docs.py.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.generate import catalogue_text as text
from docs.generate.layer_docs import LayerDoc, parse_layer_doc
from mgcaffe.engine import registry
from mgcaffe.engine.checks.fork_fields import HOW_TO_COMPUTE
from mgcaffe.engine.checks.unused_fields import READ_IN_PART
from mgcaffe.engine.layer import Arity, Layer
from mgcaffe.prototxt import LayerParameter, schema_tables
from mgcaffe.prototxt.schema_tables import Field

TRANSFORMATION = "transform_param"
PAGE = Path(__file__).resolve().parents[1] / "layers.md"
_WIDTH = 120
_ORIGINS = {"bvlc": "", "mgcaffe": "ours", "ssd": "SSD", "nvidia": "NVIDIA", "intel": "Intel"}


@dataclass(frozen=True, eq=False)
class Entry:
    """One section of the page: a docstring, and the classes that it is about."""

    doc: LayerDoc
    classes: Sequence[type[Layer]]

    @property
    def title(self) -> str:
        """The section's heading."""
        return ", ".join(self.doc.names)


class Schema:
    """The fields of the messages that layers read, with their origins and the values of their enums."""

    def __init__(self) -> None:
        folder = Path(schema_tables.__file__).parent
        self._fields: dict[str, list[Field]] = {}
        for field in schema_tables.merge_fields(schema_tables.read_fields(folder / "caffe_fields.csv")):
            self._fields.setdefault(field.message, []).append(field)
        self._values: dict[str, list[str]] = {}
        for value in schema_tables.merge_enums(schema_tables.read_enums(folder / "caffe_enums.csv")):
            self._values.setdefault(value.enum, []).append(value.name)

    def fields(self, param: str) -> list[Field]:
        """Return the fields of the message that stands in a layer under the name `param`."""
        return self._fields[LayerParameter.DESCRIPTOR.fields_by_name[param].message_type.name]

    def named(self, param: str, said: str) -> list[Field]:
        """Those of the fields whose names stand in a text."""
        words = set(re.findall(r"\w+", said))
        return [field for field in self.fields(param) if field.name in words]

    def type_of(self, field: Field) -> str:
        """Return a field's type in words: its enum's values rather than the enum's name."""
        values = self._values.get(field.type)
        kind = ", ".join(values) if values else field.type
        if field.type == "FillerParameter":
            kind = f"[filler](#{_anchor('fillers.py')})"
        return f"repeated {kind}" if field.label == "repeated" else kind


def entries() -> list[Entry]:
    """Return all registered layers, those with one docstring together, in alphabetical order.

    Raises:
        ValueError: a docstring has not the common form, or names other types than those that it is about.
    """
    by_module: dict[str, list[type[Layer]]] = {}
    for layer_class in registry.layer_types().values():
        by_module.setdefault(layer_class.__module__, []).append(layer_class)
    found = []
    for module, classes in by_module.items():
        doc = parse_layer_doc(inspect.getdoc(sys.modules[module]) or "")
        types = [layer_class.type for layer_class in classes]
        if sorted(doc.names) != sorted(types):
            raise ValueError(f"the docstring of {module} is about {doc.names}, but the module registers {types}")
        found.append(Entry(doc, classes))
    return found


def named_fields(entry: Entry, everything: Sequence[Entry], schema: Schema) -> dict[str, list[Field]]:
    """Return, by message, the fields that a layer's docstring names, itself or by pointing to another layer's."""
    docs = {name: other.doc for other in everything for name in other.doc.names}
    return {
        param: schema.named(
            param, " ".join([said, *(docs[name].fields.get(param, "") for name in entry.doc.named_like())])
        )
        for param, said in entry.doc.fields.items()
    }


def render() -> str:
    """Return the whole page.

    Raises:
        ValueError: a layer has no family, or its docstring not the common form.
    """
    everything, schema = entries(), Schema()
    families = _by_family(everything)
    lines = [*_paragraphs(text.INTRODUCTION), "", "## All types", "", *_index(families), ""]
    lines += _paragraphs(text.EVERY_LAYER)
    for family, members in families.items():
        lines += ["", f"## {family}"]
        for entry in members:
            lines += ["", *_section(entry, named_fields(entry, everything, schema), schema)]
        for module in text.SHARED.get(family, ()):
            lines += ["", *_shared(module, schema)]
    return _link_modules(re.sub(r"\n{3,}", "\n\n", "\n".join(lines))) + "\n"


def _by_family(everything: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return the entries in the order of the page."""
    by_name = {name: entry for entry in everything for name in entry.doc.names}
    listed = [name for names in text.FAMILIES.values() for name in names]
    if strangers := sorted(set(by_name) ^ set(listed)) + [name for name in set(listed) if listed.count(name) > 1]:
        raise ValueError(f"types that belong to no family or to two in catalogue_text.py, or do not exist: {strangers}")
    families: dict[str, list[Entry]] = {}
    for family, names in text.FAMILIES.items():
        families[family] = list(dict.fromkeys(by_name[name] for name in names))
    return families


def _index(families: dict[str, list[Entry]]) -> Iterator[str]:
    yield "| type | what it does | bottoms | tops | in place |"
    yield "|---|---|---|---|---|"
    for family, members in families.items():
        yield f"| **{family}** | | | | |"
        for entry in members:
            for name, layer_class in zip(entry.doc.names, _in_order(entry), strict=True):
                link = f"[{name}](#{_anchor(entry.title)})"
                fork = "" if name in text.CAFFES_OWN else " (of a fork)"
                counts = f"{_count(layer_class.bottoms)} | {_count(layer_class.tops)}"
                place = "yes" if layer_class.in_place else ""
                yield f"| {link}{fork} | {_sentence(entry.doc.summary)} | {counts} | {place} |"


def _in_order(entry: Entry) -> list[type[Layer]]:
    """Return the classes in the order in which the docstring names their types."""
    return [next(one for one in entry.classes if one.type == name) for name in entry.doc.names]


def _count(arity: Arity) -> str:
    if arity.most is None:
        return f"{arity.least} or more"
    return str(arity.least) if arity.least == arity.most else f"{arity.least} to {arity.most}"


def _section(entry: Entry, named: dict[str, list[Field]], schema: Schema) -> Iterator[str]:
    doc = entry.doc
    yield f"### {entry.title}"
    yield ""
    yield from _wrap(f"{_sentence(doc.summary)} ({_escape(doc.source)}.)")
    yield from _intro(doc.intro)
    for param, fields in named.items():
        yield from ("", f"Fields of `{param}`:", "")
        yield from _fields(param, fields, schema)
        yield from _paragraphs("\n\n".join(map(_sentence, doc.fields[param].split("\n\n"))))
        if param != TRANSFORMATION:
            warns = any((name, param) in READ_IN_PART for name in doc.names)
            yield from _others(param, fields, schema, warns=warns)
    if not doc.fields:
        yield from ("", "No fields.")
    yield ""
    for label, said in (("Bottoms", doc.bottoms), ("Tops", doc.tops), ("Parameters", doc.parameters)):
        yield from _item(label, said)
    yield from _item("Differences from Caffe", doc.differences)


def _fields(param: str, fields: Sequence[Field], schema: Schema) -> Iterator[str]:
    """Return the table of these fields, and nothing where there are none."""
    if not fields:
        return
    forked = any(_origin(field) for field in fields)
    yield "| field | type | default |" + (" from |" if forked else "")
    yield "|---|---|---|" + ("---|" if forked else "")
    for field in fields:
        row = f"| `{field.name}` | {schema.type_of(field)} | {field.default} |"
        yield row + (f" {_origin(field)} |" if forked else "")
    yield ""


def _origin(field: Field) -> str:
    """Return whose field it is; nothing for BVLC's."""
    return "a fork" if field.is_of_smaller_fork else _ORIGINS[field.origin]


def _others(param: str, named: Sequence[Field], schema: Schema, *, warns: bool = False) -> Iterator[str]:
    """Return the message's fields that the layer's docstring does not name, which the layer refuses or warns of."""
    message = schema.fields(param)[0].message
    left = [field for field in schema.fields(param) if field not in named]
    idle = [field.name for field in left if field.name == "engine" or field.name in HOW_TO_COMPUTE.get(message, ())]
    others = [field.name for field in left if field.name not in idle and field.origin != "bvlc"]
    of_forks = "Others without effect, which a warning says" if warns else "Fields of forks that are refused"
    for what, names in (("Without effect", idle), (of_forks, others)):
        if names:
            yield ""
            yield from _wrap(f"{what}: {', '.join(f'`{name}`' for name in names)}.")


def _intro(blocks: Sequence[str]) -> Iterator[str]:
    for block in blocks:
        yield ""
        if block.startswith("    "):
            yield from ("```text", *textwrap.dedent(block).splitlines(), "```")
        else:
            yield from _wrap(_escape(block))


def _item(label: str, said: str) -> Iterator[str]:
    """Return a point of the list."""
    first, *more = said.split("\n\n")
    point = " ".join([f"- **{label}**: {_escape(first)}", *map(_sentence, more)])
    yield from textwrap.wrap(point, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _shared(module: str, schema: Schema) -> Iterator[str]:
    """Return a section about what several layers of a family share: the docstring of the module that holds it."""
    name = module.rpartition(".")[2] + ".py"
    head, _, rest = text.docstring(module).partition("\n")
    yield f"### {name}"
    yield ""
    yield from _wrap(_escape(head))
    yield from _intro(re.split(r"\n\s*\n", rest.strip("\n")) if rest.strip() else [])
    if module == text.TRANSFORMER:
        named = schema.named(TRANSFORMATION, rest)
        yield ""
        yield from _fields(TRANSFORMATION, named, schema)
        yield from _others(TRANSFORMATION, named, schema)


def _link_modules(page: str) -> str:
    """Make the names of modules that the page has a section about lead there."""
    for modules in text.SHARED.values():
        for name in (module.rpartition(".")[2] + ".py" for module in modules):
            page = re.sub(rf"(?<!### )(?<!\[)\b{re.escape(name)}", f"[{name}](#{_anchor(name)})", page)
    return page


def _anchor(title: str) -> str:
    """Return what GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _paragraphs(said: str) -> Iterator[str]:
    for number, paragraph in enumerate(said.strip("\n").split("\n\n")):
        if number:
            yield ""
        if paragraph.lstrip().startswith(("#", "|", "- ")):
            yield from paragraph.splitlines()
        else:
            yield from _wrap(" ".join(paragraph.split()))


def _wrap(said: str) -> list[str]:
    return textwrap.wrap(" ".join(said.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _sentence(said: str) -> str:
    return _escape(_capital(said))


def _capital(said: str) -> str:
    """Begin with a capital letter, unless it begins with a field's name."""
    return said if re.match(r"\w+(?: \(|:|,|;)|\w*_", said) else said[:1].upper() + said[1:]


def _escape(said: str) -> str:
    """Markdown's own characters as themselves, and names with underscores as code, but not inside backquotes."""
    parts = said.split("`")
    parts[::2] = [_escape_plain(part) for part in parts[::2]]
    return "`".join(parts)


def _escape_plain(said: str) -> str:
    said = re.sub(r"([*<|\[\]])", r"\\\1", said)
    return re.sub(r"(?<![\w.])([a-z][a-z0-9]*(?:_[a-z0-9]+)+)\b(?!\.(?:py|cpp|hpp|cu)\b)", r"`\1`", said)


def print_or_write(page: str, path: Path, module: str, arguments: Sequence[str]) -> None:
    """Print a page, or write it where the only argument is --write; end with the module's usage at any other."""
    if list(arguments) == ["--write"]:
        path.write_text(page, encoding="utf-8")
    elif arguments:
        sys.exit(f"usage: python -m docs.generate.{module} [--write]")
    else:
        sys.stdout.write(page)


def main(arguments: Sequence[str]) -> None:
    """Print the page, or write it."""
    print_or_write(render(), PAGE, "catalogue", arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
