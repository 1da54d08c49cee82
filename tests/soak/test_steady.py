"""Half of the iterations, by small batches; `python -m tests.soak steady` runs all. And that the judge sees a leak."""

import random

import pytest

from tests.soak import steady
from tests.soak.steady import Sample


@pytest.mark.mpi
@pytest.mark.slow
def test_lenet_on_two_ranks_holds_no_more_memory_and_files_as_it_goes_on():
    (row,) = steady.run(full=False)
    assert row.cases == 1
    assert not row.failures, "\n".join(row.failures)
    assert row.note.count("bytes per iteration") == steady.RANKS


@pytest.mark.parametrize(
    ("bytes_an_iteration", "iterations_a_file", "found"),
    [(0, 0, None), (1500, 0, "memory grew by"), (0, 100, "open files grew from")],
)
def test_growth_is_distinguished_from_noise(bytes_an_iteration, iterations_a_file, found):
    chance = random.Random(5)
    samples = [
        Sample(
            iteration,
            (300 << 20) + iteration * bytes_an_iteration + chance.randrange(-(1 << 20), 1 << 20),
            25 + (iteration // iterations_a_file if iterations_a_file else 0) + (chance.random() < 0.1),
        )
        for iteration in range(5, 2000, 10)
    ]
    problem, note = steady.judge(samples, 2000)
    assert (problem is None) if found is None else problem.startswith(found)
    assert "open files" in note


def test_too_few_samples_are_no_proof():
    problem, _ = steady.judge([Sample(1500, 1, 1)], 2000)
    assert problem == "only 1 and 0 samples in the last two quarters"
