"""Where measuring (`autotune`) ends before all is measured: the rest follows the rules, or another process goes on."""

import contextlib
import itertools

import pytest
import torch

from mgcaffe.engine.kernels.choice.choices import Measured
from mgcaffe.engine.kernels.choice.record_file import Machine, read_records, write_records
from mgcaffe.engine.kernels.measuring import MeasuringEnded
from mgcaffe.solvers.events import Noted, Warned
from mgcaffe.solvers.setup import autotune
from tests.support.autotunekit import texts, train

pytestmark = pytest.mark.usefixtures("measures_here")

OPERATIONS = 14
"""How many operations of that net are measured."""


def end_at(monkeypatch, message, *places):
    """Have one process after the other end at the operation of that number (None: before it could begin).

    Those after them measure all.

    Returns:
        What each was asked for, in a list that grows.
    """
    measure, asked_for = autotune.measure, []

    def ended(asked, bound):
        asked_for.append([*asked])
        if len(asked_for) > len(places):
            yield from measure(asked, bound)
            return
        place = places[len(asked_for) - 1]
        yield from itertools.islice(measure(asked, bound), place or 0)
        raise MeasuringEnded(message, None if place is None else [*asked][place])

    monkeypatch.setattr(autotune, "measure", ended)
    return asked_for


def test_where_measuring_ends_early_it_goes_on_behind_what_ended_it(tmp_path, monkeypatch, cache):
    """The rest is recorded, and the next run measures what is missing."""
    asked_for = end_at(monkeypatch, "the process that measures ended", 3)
    ((weights, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Warned) == ["autotune: the process that measures ended; its rule holds"]
    assert texts(recorder, Noted)[0].startswith("autotune: measured 13 operations in ")
    first, second = asked_for
    assert second == first[4:]
    assert choices.records.keys() == {*first} - {first[3]}
    torch.testing.assert_close(weights, train(tmp_path, "")[0][0])
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Noted)[0].startswith("autotune: measured 1 operations in ")
    assert choices.records.keys() == {*first}


@pytest.mark.parametrize(("second", "count"), [(0, 2), (1, 3), (None, 2)])
def test_where_a_second_process_ends_at_once_no_third_is_started(tmp_path, monkeypatch, second, count):
    """It ends at its first operation, or before; where it ends at its second one, another goes on."""
    asked_for = end_at(monkeypatch, "it ended", 2, second)
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert len(asked_for) == count
    last = "its rule holds" if count == 3 else "the rules hold for all that is not recorded"
    assert texts(recorder, Warned) == ["autotune: it ended; its rule holds", f"autotune: it ended; {last}"]
    assert len(choices.records) == (12 if count == 3 else 2)


@pytest.mark.parametrize("answers", [0, 5, OPERATIONS])
def test_a_stop_ends_measuring_and_keeps_what_was_measured(tmp_path, monkeypatch, answers):
    """The next run measures the rest; after the last answer there is nothing to end."""
    measure, begun, ended = autotune.measure, [], []

    def watched(asked, bound):
        try:
            yield from measure(asked, bound)
        finally:
            ended.append(True)

    def begin(asked, bound):
        begun.append(watched(asked, bound))  # so that nothing but closing it ends it
        return begun[-1]

    monkeypatch.setattr(autotune, "measure", begin)
    asked_for = itertools.count(1)  # before the first answer as well
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"', stop_is_requested=lambda: next(asked_for) > answers)
    assert len(choices.records) == answers
    assert ended == [True] * len(begun) and len(begun) == (answers > 0)
    assert texts(recorder, Noted)[0].startswith(f"autotune: measured {answers} operations in ")
    left = OPERATIONS - answers
    warning = f"autotune: a stop was requested; the rules hold for {left} operations that were not measured"
    assert texts(recorder, Warned) == ([warning] if left else [])
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Noted)[0].startswith(f"autotune: measured {left} operations in ")
    assert len(choices.records) == OPERATIONS


def test_all_ranks_take_what_was_measured_before_a_stop(tmp_path):
    asked_for = itertools.count(1)  # by rank 0 alone
    ranks = train(tmp_path, 'autotune: "on"', 2, stop_is_requested=lambda: next(asked_for) > 5)
    (weights, _, choices), (others_weights, _, others_choices) = ranks
    assert len(choices.records) == 5 and others_choices.records.keys() == choices.records.keys()
    assert torch.equal(weights, others_weights)


def test_where_nothing_can_be_measured_the_rules_hold_and_old_records_do_not(tmp_path, monkeypatch):
    file, here = tmp_path / "choices.json", Machine.here(torch.device("cpu"))
    train(tmp_path, f'autotune: "{file}"')
    records = read_records(file, here)
    text = next(text for text in records if text.startswith("inner product forward"))
    old = Measured("onednn", "onednn", {"onednn": 1.0, "mm": 2.0, "exchanged": 2.0})
    write_records(file, here, records | {text: old})
    asked_for = end_at(monkeypatch, "cannot start it", None)
    ((_, recorder, choices),) = train(tmp_path, f'autotune: "{file}"')
    assert asked_for == [[text]]
    assert texts(recorder, Warned) == ["autotune: cannot start it; the rules hold for all that is not recorded"]
    (note,) = texts(recorder, Noted)
    assert note.startswith("autotune: measured 0 operations in ") and note.endswith("ms an iteration")
    assert choices.records.keys() == records.keys() - {text}


def test_blocks_are_mapped_while_the_net_is_surveyed(tmp_path, monkeypatch):
    done, tune, measure = [], autotune.tune, autotune.measure

    @contextlib.contextmanager
    def mapped():
        done.append("mapped")
        yield
        done.append("kept")

    monkeypatch.setattr(autotune, "blocks_mapped", mapped)
    monkeypatch.setattr(autotune, "tune", lambda *args: done.append("surveyed") or tune(*args))
    monkeypatch.setattr(autotune, "measure", lambda *args: done.append("measured") or measure(*args))
    train(tmp_path, 'autotune: "on"')
    assert done == ["mapped", "surveyed", "kept", "measured"]
