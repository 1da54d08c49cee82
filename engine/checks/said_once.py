"""Warnings that are said once a process, however many of its nets and Hogwild workers have the same layer."""

from __future__ import annotations

import logging

from mgcaffe.errors import Location

_said: set[str] = set()


def warn_once(log: logging.Logger, text: str, key: str = "", *, location: Location | None = None) -> None:
    """Log a warning, unless this process has said it.

    Args:
        log: the module's logger.
        text: the warning.
        key: what stands for it where its text may differ from net to net; empty: the text itself, with its place.
        location: its place in a prototxt, if that is known.
    """
    shown = f"{location}: {text}" if location else text
    what = key or shown
    if what not in _said:
        _said.add(what)
        log.warning("%s", shown)


def forget() -> None:
    """Say every warning again when it next comes, as a new process does."""
    _said.clear()
