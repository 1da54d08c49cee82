"""Before iteration 0 the ranks compare what they were given: net, solver, shapes, types, world size, version.

MPI doesn't check that ranks agree. Different counts or types end in hangs, crashes, or wrong sums with exit
code 0. So each rank states named facts (short values or whole texts); where they differ, every rank raises
the same `RankDisagreement`, whose message shows which fact differs, on which ranks, and how.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from mgcaffe.comm.transport.communicator import Communicator, name_ranks
from mgcaffe.errors import RankDisagreement

_MAX_VALUE_LENGTH = 100
_ABSENT = "(not stated)"
_HINT = "give every rank the same files, flags and version"


def handshake(communicator: Communicator, facts: Mapping[str, str], hint: str = _HINT) -> None:
    """Compare the facts of all ranks; a collective call.

    Args:
        communicator: the ranks.
        facts: name to value, the most telling first. Values of several lines are compared line by line.
        hint: what to do where they differ.

    Raises:
        RankDisagreement: on every rank, with the same message.
    """
    digests = {name: hashlib.sha256(value.encode()).hexdigest() for name, value in facts.items()}
    everyones = communicator.allgather(digests)
    if all(digests == everyones[0] for digests in everyones):
        return
    differing = _differing(everyones)
    check_equal(communicator.allgather({name: facts.get(name, _ABSENT) for name in differing}), hint)


def check_equal(facts_of_ranks: Sequence[Mapping[str, str]], hint: str = _HINT) -> None:
    """Make sure that all ranks have stated the same facts, given those of all ranks.

    Raises:
        RankDisagreement: they have not.
    """
    differing = _differing(facts_of_ranks)
    if not differing:
        return
    details = "\n".join(_describe(name, [facts.get(name, _ABSENT) for facts in facts_of_ranks]) for name in differing)
    raise RankDisagreement(
        f"the {len(facts_of_ranks)} ranks were not given the same {_enumerate(differing)}:\n{details}",
        hint=hint,
    )


def _differing(facts_of_ranks: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names of the facts that are not the same on all ranks, in the order stated."""
    names = dict.fromkeys(name for facts in facts_of_ranks for name in facts)
    return [name for name in names if len({facts.get(name) for facts in facts_of_ranks}) > 1]


def _enumerate(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _describe(name: str, values: Sequence[str]) -> str:
    """Return the lines that show how one fact differs: a value or a line for each group of ranks."""
    groups: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        groups.setdefault(value, []).append(rank)
    texts = [text.splitlines() for text in groups]
    if all(len(lines) <= 1 for lines in texts):
        place, shown = name, [lines[0] if lines else "" for lines in texts]
    else:
        number = _first_difference(texts)
        place = f"{name}, line {number + 1}"
        shown = [lines[number] if number < len(lines) else "(the text has ended)" for lines in texts]
    rows = [
        f"    {name_ranks(ranks)}: {_shorten(value.strip())}"
        for ranks, value in zip(groups.values(), shown, strict=True)
    ]
    return "\n".join([f"  {place}", *rows])


def _first_difference(texts: Sequence[Sequence[str]]) -> int:
    shortest = min(len(lines) for lines in texts)
    return next((i for i in range(shortest) if len({lines[i] for lines in texts}) > 1), shortest)


def _shorten(value: str) -> str:
    return value if len(value) <= _MAX_VALUE_LENGTH else value[: _MAX_VALUE_LENGTH - 3] + "..."
