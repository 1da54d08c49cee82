"""Reading a database's images one by one, with an error that names the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.errors import DataError

if TYPE_CHECKING:
    from mgcaffe.engine.data.record_source import RecordSource
    from mgcaffe.engine.types import Array


def read_image(source: RecordSource, number: int) -> tuple[Array, bytes]:
    """Return the image of a record, channels x height x width, and the record's bytes.

    Raises:
        DataError: the record is damaged or no Datum with an image; the message names it.
    """
    from mgcaffe.engine.data.datum import decode_datum

    try:
        value = source.value(number)
        return decode_datum(value)[0], value
    except DataError as error:
        if error.message.startswith("record "):
            raise
        raise DataError(f"{source.describe(number)}: {error.message}") from error
