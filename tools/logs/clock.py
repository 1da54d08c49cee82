"""Reads the times that glog puts before lines."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_PREFIX = re.compile(r"[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(\.\d+)?\s+\d+ \S+:\d+\] ?")
# A year that takes every date, and one that has no 29 February.
_LEAP_YEAR, _COMMON_YEAR = 2000, 2001
_DAY = timedelta(days=1)


class LogClock:
    """Goes through the lines of a log.

    Attributes:
        time: that of the last line that had one, None before it. Years count from 2000 where lines do not name theirs.
    """

    def __init__(self) -> None:
        self.time: datetime | None = None
        self._shown = datetime.min

    def read(self, line: str) -> tuple[bool, str]:
        """Return whether a line has a time, and the text behind it; without one, the whole line."""
        match = _PREFIX.search(line)
        if match is None:
            return False, line
        return self._tell(match), line[match.end() :]

    def _tell(self, match: re.Match[str]) -> bool:
        year, month, day, hour, minute, second = (int(part) if part else 0 for part in match.groups()[:6])
        fraction = float(match[7]) if match[7] else 0.0
        try:
            shown = datetime(year or _LEAP_YEAR, month, day, hour, minute, second) + timedelta(seconds=fraction)
        except ValueError:
            return False
        self.time = shown if year or self.time is None else self.time + _between(self._shown, shown)
        self._shown = shown
        return True


def _between(before: datetime, after: datetime) -> timedelta:
    """Return the time from one line to the next, whatever their years.

    It is less than a year, and may be up to a day back: threads may write a moment out of order. A 29 February that
    neither line has is left out, so that a log that is silent for the whole of one counts a day too few.
    """
    leap = any((time.month, time.day) == (2, 29) for time in (before, after))
    year = _LEAP_YEAR if leap else _COMMON_YEAR
    length = timedelta(days=366 if leap else 365)
    return (after.replace(year=year) - before.replace(year=year) + _DAY) % length - _DAY
