"""The state of the plateau policy, which a snapshot holds."""

import math

import pytest

from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.rates.plateau import Plateau, PlateauState


@pytest.mark.parametrize("loss", [math.inf, 0.1, 1 / 3, -2.5, 5e-324])
def test_a_state_comes_back_with_the_same_bits(loss):
    for state in (PlateauState(3, loss, 12345), PlateauState(0, loss, 0)):
        assert PlateauState.decode(state.encode()) == state


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"steps": -1, "lowest_loss": 1, "last_event": 1}',
        b'{"steps": 1, "lowest_loss": NaN, "last_event": 1}',
        b'{"steps": Infinity, "lowest_loss": 1, "last_event": 1}',
        b'{"steps": null, "lowest_loss": 1, "last_event": 1}',
        b'{"steps": 1, "lowest_loss": 1, "last_event": -7}',
    ],
)
def test_damaged_states_are_refused(content):
    with pytest.raises(ValueError):
        PlateauState.decode(content)


def test_a_forks_state_without_a_loss_has_seen_none():
    assert PlateauState.of_fork(1, 1e38, 0) == PlateauState(1, math.inf, 0)
    assert PlateauState.of_fork(2, 0.5, 7) == PlateauState(2, 0.5, 7)


def test_it_does_what_the_forks_loop_does():
    losses = [math.sin(i) + 2 / (i + 1) for i in range(60)]
    sizes = [7, 3, 11]
    plateau = Plateau(SolverParameter(plateau_winsize=sizes))
    lowest, event, step, expected, found = math.inf, 0, 0, [], []
    for iteration, loss in enumerate(losses):
        if loss < lowest:
            lowest, event = loss, iteration
        if step < len(sizes) and iteration >= event + sizes[step]:
            step, event = step + 1, iteration
        expected.append((step, lowest, event))
        plateau.observe(iteration, loss)
        state = plateau.state
        found.append((state.steps, state.lowest_loss, state.last_event))
    assert found == expected and step == 3
