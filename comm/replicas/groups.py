"""DS-Sync's groups: who averages with whom in which round (arXiv 2007.03298).

The ranks' numbers are written with one digit for each factor of the world size. In round r those ranks form a group
that differ in digit r alone, so that after one round for each digit every replica is the mean of all: a group of a
later round takes one rank from each group of the earlier ones.
"""

from __future__ import annotations

from math import prod

from mgcaffe.errors import CommError

FORMS = ("grid", "hypercube", "factors")
"""`grid`: two rounds, rows and columns, for a square number of ranks; `hypercube`: pairs, for a power of two;
`factors`: one round for each prime factor, for any number."""


def radices(size: int, form: str = "factors") -> list[int]:
    """Return how many ranks a group of each round has; their product is the world size.

    Args:
        size: the world size.
        form: one of FORMS. Two and three ranks are one group, whatever the form.

    Raises:
        CommError: an unknown form, or a world size that it is not for.
    """
    if form not in FORMS:
        raise CommError(f"there are no groups of the form '{form}'", hint=f"there are {', '.join(FORMS)}")
    factors = _prime_factors(size)
    if len(factors) <= 1:
        return factors or [1]
    if form == "grid":
        side = round(size**0.5)
        if side * side != size:
            raise CommError(f"{size} ranks make no square grid", hint="`factors` fits any number")
        return [side, side]
    if form == "hypercube" and set(factors) != {2}:
        raise CommError(f"{size} ranks make no hypercube: {size} is no power of two", hint="`factors` fits any number")
    return factors


def group_of(rank: int, round_number: int, sizes: list[int]) -> list[int]:
    """Return the ranks that average with this one in a round, in order and with itself among them.

    Args:
        rank: this rank.
        round_number: from 0 on; rounds repeat after one for each of `sizes`.
        sizes: as `radices` returns them.
    """
    digit = round_number % len(sizes)
    step = prod(sizes[:digit])
    first = rank - rank // step % sizes[digit] * step
    return [first + number * step for number in range(sizes[digit])]


def _prime_factors(number: int) -> list[int]:
    factors, candidate = [], 2
    while number > 1:
        while number % candidate == 0:
            factors.append(candidate)
            number //= candidate
        candidate += 1
    return factors
