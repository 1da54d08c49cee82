"""What has a rank give up waiting: a check that its waiting calls make about twice a second."""

from __future__ import annotations

from collections.abc import Callable


class Alarm:
    """Shared by all groups that were made of one; without a check nothing is given up."""

    def __init__(self) -> None:
        self._check: Callable[[], None] | None = None

    def set(self, check: Callable[[], None] | None) -> None:
        """Have waiting calls call `check`, which raises a `PeerFailure` where waiting is in vain."""
        self._check = check

    def check(self) -> None:
        """Raise what the check raises."""
        if self._check is not None:
            self._check()
