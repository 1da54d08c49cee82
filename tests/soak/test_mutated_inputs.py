"""A seeded twentieth of the mutated inputs; `python -m tests.soak inputs` runs all."""

import pytest

from tests.soak import mutated_inputs

pytestmark = pytest.mark.slow


def test_every_mutated_input_ends_with_a_result_or_one_message():
    (row,) = mutated_inputs.run(full=False)
    assert row.cases == mutated_inputs.CASES // 20
    assert not row.failures
    assert " code 0" in row.note and " code 65" in row.note
