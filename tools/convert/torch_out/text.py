"""The text of a module's file: its parts in order, lines of 100 columns as far as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mgcaffe.tools.convert.torch_out.helpers import HELPERS
from mgcaffe.tools.convert.torch_out.module import Module, Value

_WIDTH = 100
_INDENT = 4
_LOAD = '''
def load(path=None):
    """Return the net with its weights, in evaluation mode.

    Args:
        path: the file of the weights; without it, the one beside this file.
    """
    from safetensors.torch import load_file

    with torch.device("meta"):
        net = {name}()
    weights = load_file(path or Path(__file__).with_suffix(".safetensors"))
    net.load_state_dict(weights, assign=True)
    return net.eval()
'''


def module_text(module: Module, *, origin: str, version: str, note: str = "") -> str:
    """Return a whole file.

    Args:
        module: what it defines.
        origin: the net's file.
        version: of this program.
        note: what the file says of itself besides.
    """
    head = f'"""{_plain(module.name)}, made by mgcaffe {version} from {_plain(origin)}.'
    about = [head, "", *_about(module)]
    if note:
        about += ["", f"{note[0].upper()}{note[1:]}."]
    uses_functions = any("F." in text for text in _code(module))
    imports = [f"import {name}" for name in sorted(module.imports)]
    lines = [*about, '"""', "", *imports, "from pathlib import Path", "", "import torch"]
    lines += ["from torch import nn", *(["from torch.nn import functional as F"] if uses_functions else [])]
    for name in HELPERS:
        if name in module.helpers:
            lines += ["", "", HELPERS[name].text]
    lines += ["", "", *_class(module), "", "", _LOAD.strip().format(name=module.name)]
    return "\n".join(lines) + "\n"


def _code(module: Module) -> Iterator[str]:
    yield from (HELPERS[name].text for name in module.helpers)
    yield from (statement.text for statement in module.statements)


def _about(module: Module) -> Iterator[str]:
    for what, values in (("Input", module.inputs), ("Output", module.outputs)):
        for value in values:
            yield f"{what} `{value.variable}`: {_shape(value)}{_named(value)}."


def _shape(value: Value) -> str:
    return f"shape {tuple(value.shape)} in the net" if value.shape else "a single number"


def _named(value: Value) -> str:
    return "" if value.variable == value.name else f" (blob {_plain(value.name)})"


def _plain(text: str) -> str:
    """Return a text as it can stand in a docstring or comment."""
    return "".join(letter if letter.isprintable() and letter not in '"\\' else "?" for letter in text)


def _class(module: Module) -> Iterator[str]:
    yield f"class {module.name}(nn.Module):"
    if module.attributes:
        yield "    def __init__(self):"
        yield "        super().__init__()"
    for name, constructor in module.attributes.items():
        if constructor is None:
            yield from wrapped(f'self.register_buffer("{name}", torch.zeros({module.buffers[name]}))', 8)
        else:
            yield from wrapped(f"self.{name} = {constructor}", 8)
    if module.attributes:
        yield ""
    yield from wrapped(f"def forward({', '.join(['self', *(value.variable for value in module.inputs)])}):", 4)
    for statement in module.statements:
        line = f"{', '.join(statement.targets)} = {statement.text}"
        comment = f"# {_plain(statement.comment)}" if statement.comment else ""
        if comment and len(line) + len(comment) + 10 > _WIDTH:
            yield f"        {comment}"
            comment = ""
        yield from wrapped(line, 8, f"  {comment}" if comment else "")
    outputs = [value.variable for value in module.outputs]
    together = f"        return {', '.join(outputs)}"
    if len(together) > _WIDTH:
        yield from ("        return (", *(f"            {name}," for name in outputs), "        )")
    else:
        yield together


def wrapped(line: str, indent: int, comment: str = "") -> Iterator[str]:
    """Break a line that is too long in its last brackets: what is in them on one line, else an argument a line."""
    space = " " * indent
    if len(space + line) <= _WIDTH:
        yield space + line + comment
        return
    place = _last_brackets(line)
    inner = " " * (indent + _INDENT)
    if place is None:
        target, sign, value = line.partition(" = ")
        yield from (f"{space}{target}{sign}(", f"{inner}{value}", f"{space})") if sign else (space + line,)
        return
    opened, closed = place
    arguments = _split(line[opened + 1 : closed])
    yield space + line[: opened + 1]
    together = inner + ", ".join(arguments)
    if len(together) <= _WIDTH:
        yield together
    else:
        for argument in arguments:
            yield from wrapped(f"{argument},", indent + _INDENT)
    yield space + line[closed:]


def _last_brackets(line: str) -> tuple[int, int] | None:
    """Return the places of the last brackets of a line that are in no others."""
    depth, opened, found = 0, 0, None
    for place, letter in enumerate(line):
        if letter in "([":
            if depth == 0:
                opened = place
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth == 0 and place > opened + 1:
                found = opened, place
    return found


def _split(text: str) -> Sequence[str]:
    """Return the arguments between brackets."""
    depth, parts = 0, [""]
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
