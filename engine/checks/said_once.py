"""Warnings that are said once a process, however many of its nets and Hogwild workers have the same layer."""

from __future__ import annotations

import logging

_said: set[str] = set()


def warn_once(log: logging.Logger, text: str, key: str = "") -> None:
    """Log a warning, unless this process has said it.

    Args:
        log: the module's logger.
        text: the warning.
        key: what stands for it where its text may differ from net to net; empty: the text itself.
    """
    what = key or text
    if what not in _said:
        _said.add(what)
        log.warning("%s", text)


def forget() -> None:
    """Say every warning again when it next comes, as a new process does."""
    _said.clear()
