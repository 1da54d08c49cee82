"""Which nets a solver trains and tests: every way of naming them, and what is refused."""

import pytest

from mgcaffe.errors import PrototxtError, SolverError
from mgcaffe.prototxt import TEST, TRAIN, parse_solver
from mgcaffe.solvers.setup.nets import NetReader

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
    ("text", "message"),
    [
        ('net: "a.prototxt" test_net: "b.prototxt" test_interval: 1', "test_iter is given 0 time(s) for 1"),
        ('net: "a.prototxt" test_iter: 1', "test_interval is 0, and the solver has 1 test net(s)"),
        ('net: "a.prototxt" test_iter: 0 test_interval: 1', "test_iter is 0 and must be above 0"),
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


def test_a_net_that_trains_and_tests_is_read_once():
    nets = reader('net: "a.prototxt" test_iter: 1 test_interval: 1')
    assert nets.train_net().param is nets.test_nets()[0].param
