"""Which nets a solver trains and tests: every way of naming them, and what is refused."""

import os

import pytest

from mgcaffe.errors import PrototxtError, SolverError
from mgcaffe.prototxt import TEST, TRAIN, parse_solver, print_text
from mgcaffe.solvers.setup.nets import NetReader, solver_text

INLINE = 'name: "{}" layer {{ name: "x" type: "Silence" }}'


@pytest.fixture(autouse=True)
def net_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.prototxt").write_text(f'name: "{name}" layer {{ name: "x" type: "Silence" }}')


def reader(text):
    source = parse_solver(text, file="s.prototxt")
    return NetReader(source.param, source)


def refusal(text, error=SolverError):
    nets = reader(text)
    with pytest.raises(error) as caught:
        nets.train_net()
        nets.test_nets()
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'net: "a.prototxt"',
        'train_net: "a.prototxt"',
        f"net_param {{ {INLINE.format('a')} }}",
        f"train_net_param {{ {INLINE.format('a')} }}",
    ],
)
def test_the_training_net_is_named_in_four_ways(text):
    choice = reader(text).train_net()
    assert (choice.param.name, choice.phase, choice.level, choice.stages) == ("a", TRAIN, 0, ())
    assert choice.sources.layers[0].location.file in ("a.prototxt", "s.prototxt")


def test_the_training_net_is_named_exactly_once():
    assert "names no training net" in refusal("max_iter: 1")
    both = refusal('net: "a.prototxt"\ntrain_net: "b.prototxt"')
    assert both.startswith("s.prototxt:2:")
    assert "names its training net 2 times: net, train_net" in both


def test_test_nets_come_in_caffes_order():
    text = (
        'net: "a.prototxt" test_net: "b.prototxt" test_net: "c.prototxt"'
        f" test_net_param {{ {INLINE.format('inline')} }}"
        " test_iter: 1 test_iter: 2 test_iter: 3 test_iter: 4 test_iter: 5 test_interval: 1"
    )
    choices = reader(text).test_nets()
    assert [choice.param.name for choice in choices] == ["inline", "b", "c", "a", "a"]
    assert [choice.test_iter for choice in choices] == [1, 2, 3, 4, 5]
    assert {choice.phase for choice in choices} == {TEST}


def test_a_training_net_of_its_own_is_no_test_net():
    assert reader('train_net: "a.prototxt"').test_nets() == []
    assert "test_iter is given 1 time(s) for 0 test net(s)" in refusal('train_net: "a.prototxt" test_iter: 1')


def test_states_bring_levels_and_stages():
    nets = reader(
        'net: "a.prototxt" test_iter: 1 test_iter: 1 test_interval: 1'
        ' train_state { level: 2 stage: "deep" }'
        ' test_state { } test_state { level: 1 stage: "x" stage: "y" }'
    )
    assert (nets.train_net().level, nets.train_net().stages) == (2, ("deep",))
    assert [(choice.level, choice.stages) for choice in nets.test_nets()] == [(0, ()), (1, ("x", "y"))]


@pytest.mark.parametrize(
    ("own", "solvers", "train", "test"),
    [
        ("", "", (TRAIN, 0), (TEST, 0)),
        ("level: 3", "", (TRAIN, 3), (TEST, 3)),
        ("level: 3", "level: 0", (TRAIN, 0), (TEST, 0)),
        ("level: 3", "level: 1", (TRAIN, 1), (TEST, 1)),
        ("phase: TEST", "", (TEST, 0), (TEST, 0)),
        ("phase: TEST", "phase: TRAIN", (TRAIN, 0), (TRAIN, 0)),
        ("", "phase: TEST level: 2", (TEST, 2), (TEST, 2)),
    ],
)
def test_the_solvers_state_comes_before_the_nets_and_that_before_the_phase_of_the_use(own, solvers, train, test):
    net = f'net_param {{ {INLINE.format("a")} state {{ {own} stage: "own" }} }}'
    nets = reader(f"{net} test_iter: 1 test_interval: 1 train_state {{ {solvers} }} test_state {{ {solvers} }}")
    assert (nets.train_net().phase, nets.train_net().level) == train
    (choice,) = nets.test_nets()
    assert (choice.phase, choice.level, choice.stages) == (*test, ())


def test_weights_in_a_net_are_compared_by_their_digests():
    texts = []
    for value in (1, 1, 2):
        layer = f'layer {{ name: "x" type: "Silence" blobs {{ shape {{ dim: 2 }} data: 0.25 data: {value} }} }}'
        texts.append(reader(f'net_param {{ name: "a" force_backward: true {layer} }}').train_net().text)
    assert texts[0] == texts[1] != texts[2]
    assert "0.25" not in texts[0] and "force_backward: true" in texts[0]
    differing = [line for line in texts[0].splitlines() if line not in texts[2].splitlines()]
    assert [line.partition(":")[0] for line in differing] == ["# layer 'x', blob 0"]


@pytest.mark.parametrize("field", ["net_param", "train_net_param", "test_net_param"])
def test_weights_in_a_solvers_nets_are_compared_and_shown_by_their_digests(field):
    texts = []
    for value in (1, 1, 2):
        layer = f'layer {{ name: "x" type: "Silence" blobs {{ shape {{ dim: 2 }} data: 0.25 data: {value} }} }}'
        param = parse_solver(f'max_iter: 3 {field} {{ name: "a" {layer} }}').param
        texts.append(solver_text(param))
        assert getattr(param, field) and "0.25" in print_text(param)  # the message itself keeps them
    assert texts[0] == texts[1] != texts[2]
    assert "0.25" not in texts[0] and f"{field} {{" in texts[0] and "max_iter: 3" in texts[0]
    differing = [line for line in texts[0].splitlines() if line not in texts[2].splitlines()]
    assert [line.partition(":")[0] for line in differing] == ["# layer 'x', blob 0"]


def test_a_solver_without_weights_is_shown_as_it_is():
    param = parse_solver('net: "a.prototxt" max_iter: 3 test_net_param { name: "b" }').param
    assert solver_text(param) == print_text(param)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('net: "a.prototxt" test_net: "b.prototxt" test_interval: 1', "test_iter is given 0 time(s) for 1"),
        ('net: "a.prototxt" test_iter: 1', "test_interval is 0, and the solver has 1 test net(s)"),
        ('net: "a.prototxt" test_iter: -1 test_interval: 1', "test_iter is -1 and must not be below 0"),
        (
            'net: "a.prototxt" test_iter: 1 test_interval: 1 test_state { } test_state { }',
            "test_state is given 2 time(s) for 1 test net(s)",
        ),
    ],
)
def test_fields_that_do_not_fit_the_test_nets_are_refused(text, message):
    refused = refusal(text)
    assert message in refused
    assert refused.startswith("s.prototxt:1:")


def test_a_missing_net_file_is_named_with_the_place_that_names_it():
    message = refusal('max_iter: 1\nnet: "nowhere.prototxt"', PrototxtError)
    assert message.startswith("s.prototxt:2:1: net names 'nowhere.prototxt'")
    assert "relative to the folder" in message


@pytest.mark.parametrize("name", [b"\xe4.prototxt", "\xe4.prototxt".encode()])
def test_a_net_whose_name_is_not_utf8_is_found_by_its_bytes_or_in_utf8(tmp_path, name):
    (tmp_path / "a.prototxt").rename(tmp_path / os.fsdecode(name))
    assert reader(r'net: "\xe4.prototxt"').train_net().param.name == "a"


def test_a_net_that_trains_and_tests_is_read_once():
    nets = reader('net: "a.prototxt" test_iter: 1 test_interval: 1')
    assert nets.train_net().param is nets.test_nets()[0].param
