"""Reads how many workers a user asks about: `4,8,...,2048`, `5,10,20,...,500`, `4:2048:2x`, `16:64:16`."""

from __future__ import annotations

import argparse
import re

_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+)(x?))?")
_LARGEST = 10_000_000
_MOST = 1000


def worker_counts(text: str) -> list[int]:
    """Read a list of counts, ascending and each once.

    Beside single numbers there may be ranges, `first:last` (doubling), `first:last:3x` (times 3) or
    `first:last:16` (plus 16), and `...` between two numbers, which goes on as the two before it do: by their
    ratio where it is a whole number, else by their difference; after one alone it doubles. Where that misses the last
    number, 1, 2 and 5 are followed by 10, 20, 50 and so on.
    """
    counts: list[int] = []
    words = [word.strip() for word in text.split(",") if word.strip()]
    while words:
        word = words.pop(0)
        if word in ("...", "…"):
            if not counts or not words:
                raise argparse.ArgumentTypeError(f"'{text}': '...' stands between two numbers")
            last = _number(words.pop(0), text)
            steps = _steps(counts[-1], last, *_progression(counts))
            round_numbers = _round_numbers(counts[-1], last)
            counts += (steps if steps[-1] == last else round_numbers or steps)[1:]
            if counts[-1] != last:
                raise argparse.ArgumentTypeError(f"'{text}': '...' goes on to {counts[-1]} and does not meet {last}")
        elif match := _RANGE.fullmatch(word):
            first, last = (_number(number, text) for number in match.group(1, 2))
            step, times = (2, True) if match[3] is None else (int(match[3]), match[4] == "x")
            if step < (2 if times else 1) or last < first:
                raise argparse.ArgumentTypeError(f"'{text}': the range {word} does not ascend")
            counts += _steps(first, last, step, times)
        else:
            counts.append(_number(word, text))
    if not counts:
        raise argparse.ArgumentTypeError("no number of workers is given")
    return sorted(set(counts))


def _number(word: str, text: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= _LARGEST:
        raise argparse.ArgumentTypeError(
            f"'{text}': '{word}' is not a number of workers from 1 to {_LARGEST:,}, nor a range such as 4:2048:2x"
        )
    return int(word)


def _progression(counts: list[int]) -> tuple[int, bool]:
    """Return the step after these numbers, and whether it multiplies."""
    if len(counts) < 2:
        return 2, True
    before, last = counts[-2:]
    if last > before and last % before == 0:
        return last // before, True
    return max(1, last - before), False


def _steps(first: int, last: int, step: int, times: bool) -> list[int]:
    counts = [first]
    while (following := counts[-1] * step if times else counts[-1] + step) <= last:
        counts.append(following)
        if len(counts) > _MOST:
            raise argparse.ArgumentTypeError(f"more than {_MOST} numbers of workers from {first} to {last}")
    return counts


def _round_numbers(first: int, last: int) -> list[int]:
    """Return 5, 10, 20, 50 up to the last; nothing where first and last are not both among such numbers."""
    numbers = [digit * 10**power for power in range(len(str(_LARGEST))) for digit in (1, 2, 5)]
    if first not in numbers or last not in numbers:
        return []
    return [number for number in numbers if first <= number <= last]
