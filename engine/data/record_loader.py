"""Loads the records of a batch, several at a time where that pays, and says what becomes of bad ones.

A bad record is one that cannot be read, is damaged, cannot be decoded, or does not fit. It stops the run, or, with
`data_param { bad_record: SKIP }` (`--bad_record=skip`), the next good record of the source, in the order of its
numbers, stands in for it. That depends on the source alone: whichever rank meets the record, in whichever epoch, before
or after a resume, does the same, no batch gets smaller, and no position moves. Each rank that meets a bad record warns
about it once; more than `bad_record_limit` (100) of them stop the run after all.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError
from mgcaffe.prototxt import LayerParameter

Record = TypeVar("Record")
Item = TypeVar("Item")
Result = TypeVar("Result")

_log = logging.getLogger("mgcaffe.engine")
_MAX_THREADS = 16
_HINT = "--bad_record=skip (bad_record: SKIP in data_param) goes on with the next good record instead"


@dataclass(frozen=True)
class BadRecordRule:
    """What to do with bad records.

    Attributes:
        skip: leave them out, instead of stopping.
        limit: how many different ones may be left out.
    """

    skip: bool = False
    limit: int = 100


class RecordLoader(Generic[Record]):
    """Loads records by number.

    Args:
        count: how many the source holds.
        load: gives a record; called by several threads at once. Raises DataError where it is bad, with the record's
            name in the message.
        rule: what then.
        threads: how many records to load at the same time; 1 loads them in the thread that asks.

    Attributes:
        check: is given every record, and raises DataError where it does not fit; called by the thread that asks.
    """

    def __init__(self, count: int, load: Callable[[int], Record], rule: BadRecordRule, threads: int = 1) -> None:
        self._count, self._load, self._rule = count, load, rule
        self._instead: dict[int, int] = {}
        self._bad = 0
        self.check: Callable[[int, Record], None] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.use_threads(threads)

    def use_threads(self, threads: int) -> None:
        """Load so many records at a time from now on. The threads start when there is work for them."""
        self.close()
        self._threads, self._process = threads, os.getpid()
        if threads > 1:
            self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def first(self) -> Record:
        """Return the first good record.

        Raises:
            DataError: record 0 is bad and stops the run, or too many are.
        """
        return self.load([0])[1][0]

    def load(self, numbers: Sequence[int]) -> tuple[list[int], list[Record]]:
        """Good records for these numbers, in their order, and the numbers that they really have.

        Raises:
            DataError: a record is bad, and the rule says to stop.
        """
        wanted = [self._instead.get(number, number) for number in numbers]
        records: list[Record] = []
        for slot, (number, loaded) in enumerate(zip(wanted, self.run(self._attempt, wanted), strict=True)):
            if number in self._instead:  # since a record before it in this batch was found to be bad
                wanted[slot] = self._instead[number]
                loaded = self._attempt(wanted[slot])
            problem = self._problem(wanted[slot], loaded)
            if problem is not None:
                wanted[slot], loaded = self._stand_in(wanted[slot], problem)
            records.append(loaded)
        return wanted, records

    def run(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call a function with each of the items, in the threads that load, and return the results in order."""
        if self._pool is None or len(items) < 2:
            return [function(item) for item in items]
        if os.getpid() != self._process:  # a forked process has none of the threads
            self.use_threads(self._threads)
        # Several pieces a thread, since some images take longer than others.
        step = -(-len(items) // (4 * self._threads))
        pieces = [items[start : start + step] for start in range(0, len(items), step)]
        done = self._pool.map(lambda piece: [function(item) for item in piece], pieces)
        return [result for piece in done for result in piece]

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None and os.getpid() == self._process:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = None

    def _attempt(self, number: int) -> Any:
        """Return a record, or the error if it is bad."""
        try:
            return self._load(number)
        except DataError as error:
            return error

    def _problem(self, number: int, loaded: Any) -> DataError | None:
        if isinstance(loaded, DataError):
            return loaded
        if self.check is not None:
            try:
                self.check(number, loaded)
            except DataError as error:
                return error
        return None

    def _stand_in(self, number: int, problem: DataError) -> tuple[int, Record]:
        """Return the next good record after a bad one."""
        bad: list[int] = []
        current, found = number, problem
        while True:
            self._note(found)
            bad.append(current)
            current = (current + 1) % self._count
            current = self._instead.get(current, current)
            if current in bad:
                raise DataError(f"{found.message}; no record of the source is good", location=found.location)
            loaded = self._attempt(current)
            following = self._problem(current, loaded)
            if following is None:
                break
            found = following
        self._instead.update(dict.fromkeys(bad, current))
        return current, loaded

    def _note(self, problem: DataError) -> None:
        """Count a bad record and warn of it, or stop."""
        if not self._rule.skip:
            raise DataError(problem.message, location=problem.location, hint=problem.hint or _HINT) from problem
        self._bad += 1
        if self._bad > self._rule.limit:
            raise DataError(
                f"{problem.message}; this is bad record {self._bad}, and bad_record_limit is {self._rule.limit}",
                location=problem.location,
                hint="repair the source, or raise --bad_record_limit",
            ) from problem
        where = f"{problem.location}: " if problem.location else ""
        _log.warning(
            "%s%s: skipped, the next good record stands in (bad record %d, limit %d)",
            where,
            problem.message,
            self._bad,
            self._rule.limit,
            extra={"from_every_rank": True},
        )


def bad_record_rule(param: LayerParameter) -> BadRecordRule:
    """Return what a layer's data_param says of bad records."""
    data = param.data_param
    return BadRecordRule(data.bad_record == type(data).SKIP, int(data.bad_record_limit))


def decode_threads(param: LayerParameter) -> int:
    """Return how many images to decode at a time: data_param.parser_threads, or as many as this rank computes with."""
    data = param.data_param
    return max(1, min(int(data.parser_threads) or torch.get_num_threads(), _MAX_THREADS))


def check_shape(transformer: Transformer, shape: Shape, first: Shape, name: str) -> None:
    """Make sure that an image gets the same shape as the source's first one.

    Raises:
        DataError: it does not, or the transformation cannot take it.
    """
    try:
        fits = transformer.output_shape(shape) == transformer.output_shape(first)
    except DataError as error:
        raise DataError(f"{name}: {error.message}", hint=error.hint) from error
    if not fits:
        sizes = (" x ".join(map(str, size)) for size in (shape, first))
        raise DataError("{} has shape {}, the source's first {}".format(name, *sizes))
