"""Messages between trainers and embedding servers: flat buffers of bytes, numbers in the host's own byte order.

Every message begins with whole numbers (int64), and what else it has follows without gaps:

    look-up     [number, oldest, n]  n x [table, ids, bags, has lengths, trains]  all ids  all lengths
                    answered by the pooled vectors, one for each bag, without a header
    update      [n]  n x [number]  rate, scale (float64)  the gradients of the pooled vectors
    read        [table, what, start, count]      answered by so many numbers
    write       [table, what, start, count]      so many numbers; answered by an empty message
    save        any bytes, for what holds the tables (`HeldTables.save`), which writes its rows to a file; answered,
                    when that is done, by a message `saved` of any bytes, while other requests are served
    load        any bytes, likewise (`HeldTables.load`); answered by any bytes when the rows have been read
    done        []

A server has some rows of a table; numbers of rows count from the first of these on. A look-up may name a table twice.
`number` counts a trainer's look-ups; of what has `trains` the server keeps the ids for the update that follows, and it
forgets look-ups below `oldest`. An update gives the gradients of the look-ups that it names, in their order, of what
has `trains` alone. The tag says what a message is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy

from mgcaffe.errors import CommError

LOOK_UP, UPDATE, READ, WRITE, DONE, SAVE, LOAD = 1, 2, 3, 4, 5, 7, 8
"""Tags of what trainers send."""
REPLY, SAVED = 6, 9
"""Tags of what servers answer."""
_WORD = 8


@dataclass(frozen=True)
class Bags:
    """The ids of a batch in one table.

    Attributes:
        rows: row numbers (int64), bag after bag.
        lengths: how many rows each bag has (int64); None: one each.
    """

    rows: numpy.ndarray
    lengths: numpy.ndarray | None = None

    @property
    def count(self) -> int:
        """How many bags there are."""
        return len(self.rows if self.lengths is None else self.lengths)


class Request(NamedTuple):
    """What is looked up in one table.

    Attributes:
        table: its number.
        bags: the rows.
        trains: whether gradients of their sums will be given.
    """

    table: int
    bags: Bags
    trains: bool


@dataclass(frozen=True)
class LookUp:
    """A decoded look-up.

    Attributes:
        number: of the look-up, ascending.
        oldest: the smallest number that an update may still name.
        requests: what is looked up.
        rows: of all requests, one after another, once it is decoded.
    """

    number: int
    oldest: int
    requests: Sequence[Request]
    rows: numpy.ndarray = field(default_factory=lambda: numpy.empty(0, numpy.int64))


@dataclass(frozen=True)
class Update:
    """A decoded update.

    Attributes:
        numbers: of the look-ups whose gradients it holds.
        rate: the solver's learning rate.
        scale: a factor on every gradient.
        gradients: flat, of the tables' type.
    """

    numbers: list[int]
    rate: float
    scale: float
    gradients: numpy.ndarray


@dataclass(frozen=True)
class Block:
    """Which numbers are read or written.

    Attributes:
        table: its number.
        what: 0 for the values, from 1 on for the rule's histories.
        start, count: so many elements of the server's rows, from this one on.
    """

    table: int
    what: int
    start: int
    count: int


def encode_look_up(message: LookUp) -> numpy.ndarray:
    """Return a look-up's content (int64)."""
    head = [message.number, message.oldest, len(message.requests)]
    for table, bags, trains in message.requests:
        head += [table, len(bags.rows), bags.count, bags.lengths is not None, trains]
    rows = [each.bags.rows for each in message.requests]
    lengths = [each.bags.lengths for each in message.requests if each.bags.lengths is not None]
    return numpy.concatenate([numpy.array(head, numpy.int64), *rows, *lengths])


def decode_look_up(content: numpy.ndarray) -> LookUp:
    """Return the look-up in a message's bytes; its arrays are views of them.

    Raises:
        CommError: it is none.
    """
    words = _words(content)
    number, oldest, count = _take(words, 0, 3).tolist()
    heads = _take(words, 3, 5 * count).reshape(-1, 5)
    at = 3 + 5 * count
    all_rows = _take(words, at, _sum_of(heads[:, 1]))
    at += len(all_rows)
    all_lengths = _take(words, at, _sum_of(heads[heads[:, 3] != 0, 2]))
    if at + len(all_lengths) != len(words):
        raise CommError(f"a look-up has {len(words) - at - len(all_lengths)} word(s) more than its tables take")
    requests: list[Request] = []
    row, length = 0, 0
    for table, ids, bags, has_lengths, trains in heads.tolist():
        rows, row = all_rows[row : row + ids], row + ids
        lengths = None
        if has_lengths:
            lengths, length = all_lengths[length : length + bags], length + bags
            if _sum_of(lengths) != ids:
                raise CommError(f"the bags of table {table} in a look-up do not have its {ids} ids together")
        elif bags != ids:
            raise CommError(f"table {table} in a look-up has {bags} bags of one id each, and {ids} ids")
        requests.append(Request(table, Bags(rows, lengths), bool(trains)))
    return LookUp(number, oldest, requests, all_rows)


def encode_update(
    numbers: Sequence[int], rate: float, scale: float, gradients: Sequence[numpy.ndarray], dtype: numpy.dtype
) -> numpy.ndarray:
    """Return an update's bytes; arguments as `Update`'s attributes, the gradients in pieces of any shape."""
    head = numpy.array([len(numbers), *numbers, 0, 0], numpy.int64)
    head[-2:].view(numpy.float64)[:] = rate, scale
    content = numpy.empty(head.nbytes + dtype.itemsize * sum(piece.size for piece in gradients), numpy.uint8)
    content[: head.nbytes] = head.view(numpy.uint8)
    values = content[head.nbytes :].view(dtype)
    at = 0
    for piece in gradients:
        values[at : at + piece.size] = piece.reshape(-1)
        at += piece.size
    return content


def decode_update(content: numpy.ndarray, dtype: numpy.dtype) -> Update:
    """Return the update in a message's bytes; its arrays are views of them.

    Raises:
        CommError: it is none.
    """
    words = _words(content[: len(content) // _WORD * _WORD])
    count = int(_take(words, 0, 1)[0])
    numbers = _take(words, 1, count)
    rate, scale = _take(words, 1 + count, 2).view(numpy.float64).tolist()
    values = content[_WORD * (3 + count) :]
    if len(values) % dtype.itemsize:
        raise CommError(f"an update ends with {len(values)} bytes, which are no numbers of {dtype}")
    return Update(numbers.tolist(), rate, scale, values.view(dtype))


def encode_block(block: Block, values: numpy.ndarray | None = None) -> numpy.ndarray:
    """Return the bytes that ask for numbers, or, with values, that write them."""
    head = numpy.array([block.table, block.what, block.start, block.count], numpy.int64).view(numpy.uint8)
    return head if values is None else numpy.concatenate([head, values.reshape(-1).view(numpy.uint8)])


def decode_block(content: numpy.ndarray) -> tuple[Block, numpy.ndarray]:
    """Return which numbers are meant, and the bytes that follow.

    Raises:
        CommError: the message is too short.
    """
    head = _take(_words(content[: 4 * _WORD]), 0, 4)
    return Block(*head.tolist()), content[4 * _WORD :]


def _words(content: numpy.ndarray) -> numpy.ndarray:
    if len(content) % _WORD:
        raise CommError(f"a message of {len(content)} bytes is cut short: it has to be whole words of {_WORD}")
    return content.view(numpy.int64)


def _take(words: numpy.ndarray, start: int, count: int) -> numpy.ndarray:
    if not 0 <= count <= len(words) - start:
        raise CommError(f"a message says that {count} word(s) follow at word {start}, and it has {len(words)}")
    return words[start : start + count]


def _sum_of(counts: numpy.ndarray) -> int:
    if len(counts) and int(counts.min()) < 0:
        raise CommError(f"a message has a negative count, {int(counts.min())}")
    return int(counts.sum())
