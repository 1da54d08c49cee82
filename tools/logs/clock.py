"""Reads the times that glog puts before lines."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_PREFIX = re.compile(r"[IWEF](\d{4})?(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(\.\d+)?\s+\d+ \S+:\d+\] ?")
# Without a year in the prefix, a leap year takes every date.
_SOME_YEAR = 2000
_YEAR = timedelta(days=366)


class LogClock:
    """Goes through the lines of a log.

    Attributes:
        time: that of the last line that had one; None before it.
    """

    def __init__(self) -> None:
        self.time: datetime | None = None

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
            time = datetime(year or _SOME_YEAR, month, day, hour, minute, second) + timedelta(seconds=fraction)
        except ValueError:
            return False
        # A year has ended; threads may write a moment out of order.
        while self.time is not None and not year and time < self.time - timedelta(days=1):
            time += _YEAR
        self.time = time
        return True
