"""`autotune`: measured once, the same on all ranks, and never in the way of training."""

import json

import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.kernels import linear_ways, pointwise, processor
from mgcaffe.engine.kernels.choice.choices import RULES, Forced, Measured, Recorded
from mgcaffe.engine.kernels.choice.record_file import Machine, read_records, write_records
from mgcaffe.engine.kernels.measuring import OPERATIONS
from mgcaffe.engine.kernels.precision import BF16, FLOAT32
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError
from mgcaffe.solvers.events import Noted, Warned
from mgcaffe.solvers.setup import autotune
from tests.support.autotunekit import NET, read_channels_last, texts, train, write_images
from tests.support.solverkit import data_layer, make_solver, weights_of


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


@pytest.mark.usefixtures("measures_here")
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


@pytest.mark.usefixtures("measures_here")
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


@pytest.mark.usefixtures("measures_here")
def test_a_cache_that_cannot_be_written_is_said_once_and_training_goes_on(tmp_path, cache):
    cache.write_text("no folder")
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    (warning,) = texts(recorder, Warned)
    assert warning.startswith("autotune: cannot write ")
    assert warning.endswith("what was measured holds for this run alone")
    assert len(choices.records) == 14


def test_for_a_user_without_a_home_what_is_measured_holds_for_the_run(tmp_path, monkeypatch):
    def homeless(machine):
        raise DataError("there is no folder")

    monkeypatch.setattr(Machine, "default_file", homeless)
    ((_, recorder, choices),) = train(tmp_path, 'autotune: "on"')
    assert texts(recorder, Warned) == ["autotune: there is no folder; what is measured holds for this run alone"]
    assert len(choices.records) == 14


def test_a_file_given_by_name_that_cannot_be_used_stops_the_run(tmp_path):
    file = tmp_path / "choices.json"
    file.write_text("[]")
    with pytest.raises(DataError, match="this is no record of measured candidates") as caught:
        train(tmp_path, f'autotune: "{file}"')
    assert caught.value.exit_code == 65


def test_a_file_given_by_name_that_cannot_be_written_stops_the_run_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(autotune, "_measure", lambda *_: pytest.fail("measured"))
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot write ") as caught:
        train(tmp_path, f'autotune: "{tmp_path}/file/choices.json"')
    assert caught.value.exit_code == EXIT_CANNOT_WRITE


@pytest.mark.usefixtures("measures_here")
def test_what_another_run_has_recorded_meanwhile_stays(tmp_path, cache, monkeypatch):
    here = Machine.here(torch.device("cpu"))
    file, theirs, measure = here.default_file(), Measured("aten", "aten", {"aten": 1.0}), autotune._measure

    def beside_another(*arguments):
        measure(*arguments)
        write_records(file, here, {"another operation": theirs})

    file.parent.mkdir(parents=True)
    monkeypatch.setattr(autotune, "_measure", beside_another)
    train(tmp_path, 'autotune: "on"')
    records = read_records(file, here)
    assert records.pop("another operation").chosen == "aten"
    assert len(records) == 14


@pytest.mark.usefixtures("measures_here")
def test_a_record_that_does_not_hold_any_more_leaves_the_file_though_nothing_takes_its_place(tmp_path, monkeypatch):
    here, file = Machine.here(torch.device("cpu")), tmp_path / "choices.json"
    train(tmp_path, f'autotune: "{file}"')
    records = read_records(file, here)
    stale, record = next((text, each) for text, each in records.items() if len(each.seconds) > 1)
    other = next(name for name in record.seconds if name != record.rule)
    write_records(file, here, records | {stale: Measured(other, record.chosen, record.seconds)})
    monkeypatch.setattr(autotune, "_measure", lambda *_: None)
    train(tmp_path, f'autotune: "{file}"')
    assert set(read_records(file, here)) == set(records) - {stale}


@pytest.mark.usefixtures("measures_here")
def test_a_named_file_that_has_become_another_machines_meanwhile_is_left_to_it(tmp_path, monkeypatch):
    file, measure = tmp_path / "choices.json", autotune._measure
    theirs = Machine("another processor", "2.13.0", 1)

    def beside_another(*arguments):
        measure(*arguments)
        write_records(file, theirs, {"operation": Measured("aten", "aten", {"aten": 1.0})})

    monkeypatch.setattr(autotune, "_measure", beside_another)
    with pytest.raises(DataError, match="another processor"):
        train(tmp_path, f'autotune: "{file}"')
    assert set(read_records(file, theirs)) == {"operation"}


DEPTHWISE = """
layer { name: "depthwise" type: "DepthwiseConvolution" bottom: "c2" top: "c2d"
  convolution_param { kernel_size: 5 pad: 2 weight_filler { type: "gaussian" std: 0.2 } } }
layer { name: "dilated" type: "DepthwiseConvolution" bottom: "c2d" top: "c2e"
  convolution_param { kernel_size: 3 pad: 2 dilation: 2 weight_filler { type: "gaussian" std: 0.2 } } }
"""


def test_two_ranks_equal_one_by_every_candidate(tmp_path, monkeypatch):
    monkeypatch.setattr(pointwise, "FEWEST_PIXELS", 1)  # or `images` would not serve so small a net,
    monkeypatch.setattr(linear_ways, "BLOCK", 1)  # nor `blocks`
    names = sorted({name for operation in OPERATIONS.values() for name in operation.candidates})
    monkeypatch.setattr(processor, "multiplies_bf16", lambda: True)
    only_narrow = {"widened"}
    listing = write_images(tmp_path)

    def rank(communicator):
        size = communicator.size
        options = {"communicator": None if size == 1 else communicator, "dtype": torch.float32}
        before, behind = NET.split("layer { name: 'conv3'")
        behind = behind.replace("bottom: 'c2'", "bottom: 'c2e'")
        net = f"{data_layer(listing, 8 // size)}{before}{DEPTHWISE}layer {{ name: 'conv3'{behind}"
        with make_solver(net, "comm_param { schedule: SINGLE }", tmp_path, **options) as solver:
            read_channels_last(solver.net)
            first, found = weights_of(solver), {}
            for name in names:
                solver.net.arena.data.copy_(first)
                solver.net.context.choices = forced = Forced(name)
                solver.net.context.precision = BF16 if name in only_narrow else FLOAT32
                solver.step(2)
                assert forced.used, name
                found[name] = weights_of(solver)
            return found

    (one,) = run_ranks(1, rank)
    two, other = run_ranks(2, rank)
    for name in names:
        assert torch.equal(two[name], other[name]), name
        rounding = {"rtol": 1e-2, "atol": 1e-3} if name in only_narrow else {"rtol": 1e-4, "atol": 1e-5}
        torch.testing.assert_close(two[name], one[name], **rounding)
