"""`autotune`: measured once, the same on all ranks, and never in the way of training."""

import contextlib
import itertools
import json

import h5py
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.kernels import linear_ways, pointwise
from mgcaffe.engine.kernels.choice.choices import RULES, Forced, Measured, Recorded
from mgcaffe.engine.kernels.choice.record_file import Machine, read_records, write_records
from mgcaffe.engine.kernels.measuring import OPERATIONS, MeasuringEnded
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError
from mgcaffe.solvers.events import Noted, Warned
from mgcaffe.solvers.setup import autotune
from tests.support.solverkit import Recorder, data_layer, make_solver, weights_of

NET = "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'conv1' type: 'Convolution' bottom: 'data' top: 'c1' "
        "convolution_param { num_output: 3 kernel_size: 2 pad: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'relu' type: 'ReLU' bottom: 'c1' top: 'c1'",
        "name: 'conv2' type: 'Convolution' bottom: 'c1' top: 'c2' "
        "convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'conv3' type: 'Convolution' bottom: 'c2' top: 'c3' "
        "convolution_param { num_output: 2 kernel_size: 3 pad: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'conv4' type: 'Convolution' bottom: 'c3' top: 'c4' convolution_param { num_output: 2 kernel_size: 5 "
        "pad: 2 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'pool' type: 'Pooling' bottom: 'c4' top: 'p' pooling_param { kernel_size: 2 stride: 2 }",
        "name: 'ip' type: 'InnerProduct' bottom: 'p' top: 'ip' "
        "inner_product_param { num_output: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The user's cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def write_images(folder):
    """Write 22 images with two channels, and a number for each; return the list file."""
    generator = torch.Generator().manual_seed(3)
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = torch.randn(22, 2, 3, 3, generator=generator).numpy()
        file["label"] = torch.randn(22, generator=generator).numpy()
    listing = folder / "data.txt"
    listing.write_text(f"{folder / 'data.h5'}\n")
    return listing


def read_channels_last(net):
    """Have HDF5Data's images come in the net's format, as those of Data do."""

    def convert(index):
        if index == 0:
            net.blobs["data"].data = net.blobs["data"].data.contiguous(memory_format=torch.channels_last)

    net.after_forward.append(convert)


def train(folder, fields, size=1, comm=""):
    """Train three iterations; return each rank's weights, recorder and training net's choices."""
    net = data_layer(write_images(folder), 8 // size) + NET

    def rank(communicator):
        recorder = Recorder()
        alone = None if size == 1 else communicator
        options = {"recorder": recorder, "communicator": alone, "dtype": torch.float32}
        with make_solver(net, f"comm_param {{ schedule: SINGLE {comm} }} {fields}", folder, **options) as solver:
            read_channels_last(solver.net)
            solver.step(3)
            return weights_of(solver), recorder, solver.net.context.choices

    return run_ranks(size, rank)


def texts(recorder, kind):
    return [event.text for event in recorder.of(kind) if event.text.startswith("autotune")]


def test_off_measures_nothing_and_writes_nothing(tmp_path, cache):
    for fields in ("", 'autotune: "off"'):
        ((_, recorder, choices),) = train(tmp_path, fields)
        assert choices is RULES
        assert texts(recorder, Noted) == []
    assert not cache.exists()


def test_the_second_run_measures_nothing_and_has_the_same_bits(tmp_path, cache):
    ((first, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert isinstance(choices, Recorded)
    (note,) = texts(recorder, Noted)
    assert note.startswith("autotune: measured 14 operations in ")
    (file,) = (cache / "mgcaffe" / "autotune").iterdir()
    assert str(file) in note
    before = file.read_bytes()
    ((second, recorder, _),) = train(tmp_path, 'autotune: "on"')
    (note,) = texts(recorder, Noted)
    assert note.startswith("autotune: measured 0 operations in ")
    assert file.read_bytes() == before
    assert torch.equal(first, second)


def test_all_ranks_take_rank_0s_choices_and_deterministic_takes_those_recorded(tmp_path):
    file = tmp_path / "choices.json"
    fields = f'autotune: "{file}"'
    results = train(tmp_path, fields, size=2)
    assert torch.equal(results[0][0], results[1][0])
    assert texts(results[1][1], Noted) == []
    here = Machine.here(torch.device("cpu"))
    records = read_records(file, here)
    chosen = [{text: each.chosen for text, each in choices.records.items()} for _, _, choices in results]
    assert chosen == [{text: each.chosen for text, each in records.items()}] * 2
    # A choice that nobody would measure shows that it is taken from the file.
    write_records(file, here, {text: Measured(each.rule, _odd(text), dict(each.seconds) | {_odd(text): 1.0})
                               for text, each in records.items()})  # fmt: skip
    content = file.read_bytes()
    for extra, note in (("", "measured 0 operations"), ("deterministic: true", "measures nothing (deterministic)")):
        results = train(tmp_path, fields, size=2, comm=extra)
        for _, _, choices in results:
            assert {each.chosen for each in choices.records.values()} == {"positions", "mm"}
            taken = {candidate.name for candidate in choices._known.values()}
            assert taken == {"positions", "mm"}
        assert note in texts(results[0][1], Noted)[0]
        assert file.read_bytes() == content


def _odd(text):
    return "positions" if text.startswith("convolution") else "mm"


def test_convolutions_that_round_more_have_to_be_asked_for_and_ranks_agree_on_them(tmp_path):
    file = tmp_path / "choices.json"
    fields = f'autotune: "{file}"'
    first = train(tmp_path, fields)[0]
    results = train(tmp_path, f"{fields} winograd: SAFE", size=2)
    assert torch.equal(results[0][0], results[1][0])
    here = Machine.here(torch.device("cpu"))
    bounded = {text: each for text, each in read_records(file, here).items() if text.endswith("rounding within 1e-05")}
    # Filters of 3x3 and of 5x5, in three directions.
    assert len(bounded) == 6
    assert all("winograd" in " ".join(each.seconds) for each in bounded.values())
    assert not any("winograd" in " ".join(each.seconds) for each in first[2].records.values())
    for _, _, choices in results:
        assert choices.bound == 1e-5
        assert {text: choices.records[text].chosen for text in bounded} == {
            text: each.chosen for text, each in bounded.items()
        }
    # What was chosen under a bound holds for no other setting.
    forced = {}
    for text, each in bounded.items():
        name = "winograd_f45" if "winograd_f45" in each.seconds else "winograd_f43"
        forced[text] = Measured(each.rule, name, dict(each.seconds) | {name: 1.0}, each.unfit - {name})
    write_records(file, here, read_records(file, here) | forced)
    for setting, expected in (("SAFE", {"winograd_f43", "winograd_f45"}), ("OFF", set())):
        for _, _, choices in train(tmp_path, f"{fields} winograd: {setting}", size=2, comm="deterministic: true"):
            taken = {candidate.name for candidate in choices._known.values() if candidate is not None}
            assert {name for name in taken if "winograd" in name} == expected


def test_deterministic_without_a_record_follows_the_rules(tmp_path):
    ((by_rule, _, _),) = train(tmp_path, "")
    ((weights, recorder, choices),) = train(tmp_path, 'autotune: "new.json"', comm="deterministic: true")
    assert texts(recorder, Noted) == [
        "autotune measures nothing (deterministic) and takes no choice: new.json holds none"
    ]
    assert choices.records == {}
    assert torch.equal(weights, by_rule)


def test_a_bad_file_in_the_cache_is_said_once_and_replaced(tmp_path, cache):
    file = Machine.here(torch.device("cpu")).default_file()
    for content in ("{", json.dumps({"autotune": 7, "machine": {"processor": "old", "pytorch": "1", "threads": 1}})):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        ((_, recorder, _),) = train(tmp_path, 'autotune: "on"')
        (warning,) = texts(recorder, Warned)
        assert warning.startswith(f"autotune: {file}")
        assert warning.endswith("all is measured anew")
        assert len(read_records(file, Machine.here(torch.device("cpu")))) == 14


def test_a_cache_that_cannot_be_written_is_said_once_and_training_goes_on(tmp_path, cache):
    cache.write_text("no folder")
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    (warning,) = texts(recorder, Warned)
    assert warning.startswith("autotune: cannot write ")
    assert warning.endswith("what was measured holds for this run alone")
    assert len(choices.records) == 14


def test_a_file_given_by_name_that_cannot_be_used_stops_the_run(tmp_path):
    file = tmp_path / "choices.json"
    file.write_text("[]")
    with pytest.raises(DataError, match="this is no record of measured candidates") as caught:
        train(tmp_path, f'autotune: "{file}"')
    assert caught.value.exit_code == 65
    with pytest.raises(DataError, match="cannot write ") as caught:
        train(tmp_path, f'autotune: "{file}/choices.json"')
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


def test_two_ranks_equal_one_by_every_candidate(tmp_path, monkeypatch):
    monkeypatch.setattr(pointwise, "FEWEST_PIXELS", 1)  # or `images` would not serve so small a net,
    monkeypatch.setattr(linear_ways, "BLOCK", 1)  # nor `blocks`
    names = sorted({name for operation in OPERATIONS.values() for name in operation.candidates})
    listing = write_images(tmp_path)

    def rank(communicator):
        size = communicator.size
        options = {"communicator": None if size == 1 else communicator, "dtype": torch.float32}
        net = data_layer(listing, 8 // size) + NET
        with make_solver(net, "comm_param { schedule: SINGLE }", tmp_path, **options) as solver:
            read_channels_last(solver.net)
            first, found = weights_of(solver), {}
            for name in names:
                solver.net.arena.data.copy_(first)
                solver.net.context.choices = forced = Forced(name)
                solver.step(2)
                assert forced.used, name
                found[name] = weights_of(solver)
            return found

    (one,) = run_ranks(1, rank)
    two, other = run_ranks(2, rank)
    for name in names:
        assert torch.equal(two[name], other[name]), name
        torch.testing.assert_close(two[name], one[name], rtol=1e-4, atol=1e-5)


def test_where_measuring_ends_early_it_goes_on_behind_what_ended_it(tmp_path, monkeypatch, cache):
    """The rest is recorded, and the next run measures what is missing."""
    measure, asked_for = autotune.measure, []

    def ended(asked, bound):
        asked_for.append([*asked])
        if len(asked_for) > 1:
            yield from measure(asked, bound)
            return
        yield from itertools.islice(measure(asked, bound), 3)
        raise MeasuringEnded("the process that measures ended", [*asked][3])

    monkeypatch.setattr(autotune, "measure", ended)
    ((weights, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Warned) == ["autotune: the process that measures ended; its rule holds"]
    assert texts(recorder, Noted)[0].startswith("autotune: measured 13 operations in ")
    first, second = asked_for
    assert second == first[4:]
    assert choices.records.keys() == {*first} - {first[3]}
    torch.testing.assert_close(weights, train(tmp_path, "")[0][0])
    monkeypatch.setattr(autotune, "measure", measure)
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Noted)[0].startswith("autotune: measured 1 operations in ")
    assert choices.records.keys() == {*first}


@pytest.mark.parametrize(("second", "count"), [(0, 2), (1, 3), (None, 2)])
def test_where_a_second_process_ends_at_once_no_third_is_started(tmp_path, monkeypatch, second, count):
    """It ends at its first operation, or before; where it ends at its second one, another goes on."""
    measure, asked_for = autotune.measure, []

    def ended(asked, bound):
        asked_for.append([*asked])
        if len(asked_for) > 2:
            yield from measure(asked, bound)
            return
        at = 2 if len(asked_for) == 1 else second
        yield from itertools.islice(measure(asked, bound), at or 0)
        raise MeasuringEnded("it ended", None if at is None else [*asked][at])

    monkeypatch.setattr(autotune, "measure", ended)
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert len(asked_for) == count
    last = "its rule holds" if count == 3 else "the rules hold for all that is not recorded"
    assert texts(recorder, Warned) == ["autotune: it ended; its rule holds", f"autotune: it ended; {last}"]
    assert len(choices.records) == (12 if count == 3 else 2)


@pytest.mark.parametrize("answers", [0, 5, 100])
def test_a_stop_ends_measuring_and_keeps_what_was_measured(tmp_path, monkeypatch, answers):
    """The next run measures the rest."""
    measure, ended = autotune.measure, []

    def watched(asked, bound):
        try:
            yield from measure(asked, bound)
        finally:
            ended.append(True)

    monkeypatch.setattr(autotune, "measure", watched)
    asked_for = itertools.count(1)
    options = {"stop_is_requested": lambda: next(asked_for) > answers, "dtype": torch.float32}
    recorder, net = Recorder(), data_layer(write_images(tmp_path), 8) + NET
    with make_solver(net, 'autotune: "on"', tmp_path, recorder=recorder, **options) as solver:
        read_channels_last(solver.net)
        solver.step(1)
        count = len(solver.net.context.choices.records)
    (note,) = texts(recorder, Noted)
    assert note.startswith(f"autotune: measured {count} operations in ")
    if answers == 100:
        assert count == 14 and not texts(recorder, Warned)
        return
    assert count == answers and ended == ([True] if answers else [])
    (warning,) = texts(recorder, Warned)
    assert warning == (
        f"autotune: a stop was requested; the rules hold for {14 - count} operations that were not measured"
    )
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Noted)[0].startswith(f"autotune: measured {14 - count} operations in ")
    assert len(choices.records) == 14


def test_where_nothing_can_be_measured_the_rules_hold_and_old_records_do_not(tmp_path, monkeypatch):
    file, here = tmp_path / "choices.json", Machine.here(torch.device("cpu"))
    train(tmp_path, f'autotune: "{file}"')
    records = read_records(file, here)
    text = next(text for text in records if text.startswith("inner product forward"))
    old = Measured("onednn", "onednn", {"onednn": 1.0, "mm": 2.0, "exchanged": 2.0})
    write_records(file, here, records | {text: old})

    def ended(asked, bound):
        assert [*asked] == [text]
        raise MeasuringEnded("cannot start it")

    monkeypatch.setattr(autotune, "measure", ended)
    ((_, recorder, choices),) = train(tmp_path, f'autotune: "{file}"')
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
