"""Few rows and many go different ways to the same result."""

import math

import pytest
import torch

from mgcaffe.engine.kernels.rows import add_to_rows, read_rows_of, stack


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 3, 2000])
def test_reading_and_adding_are_those_of_indexing(count, dtype):
    generator = torch.Generator().manual_seed(5)
    matrix = torch.randn(300, 7, generator=generator, dtype=dtype)
    rows = torch.randint(300, (count,), generator=generator)
    assert torch.equal(read_rows_of(matrix, rows), matrix[rows])
    assert torch.equal(read_rows_of(matrix[:, 0], rows), matrix[rows, 0])
    values = torch.randn(count, 7, generator=generator, dtype=dtype)
    expected = matrix.double()
    for row, value in zip(rows.tolist(), values.double(), strict=True):
        expected[row] += value
    again = matrix.clone()
    add_to_rows(matrix, rows, values)
    add_to_rows(again, rows, values)
    assert torch.equal(matrix, again)
    torch.testing.assert_close(matrix.double(), expected, rtol=0, atol=1e-14 if dtype == torch.float64 else 1e-5)


@pytest.mark.parametrize("shape", [(2,), ()], ids=["matrices", "vectors"])
def test_a_stack_is_one_matrix_over_its_parts(shape):
    storage = torch.arange(12.0 * math.prod(shape)).view(12, *shape)
    parts = [storage[7:11], storage[1:4], storage[4:7]]
    found = stack(parts)
    assert torch.equal(found.whole, storage[1:11])
    assert found.starts.tolist() == [6, 0, 3]
    assert found.is_of(parts)
    assert not found.is_of([*parts[:2], storage[4:7]])
    for rows in ([[0, 3], [2, 2], [1, 0]], [[3], [], [0, 2]]):
        numbers = [torch.tensor(each, dtype=torch.int64) for each in rows]
        expected = torch.cat([part[each] for part, each in zip(parts, numbers, strict=True)])
        assert torch.equal(found.whole[found.rows(numbers)], expected)


def test_what_does_not_lie_in_rows_of_one_storage_is_no_stack():
    storage = torch.zeros(30)
    matrix = storage.view(10, 3)
    assert stack([matrix[:4], torch.zeros(4, 3)]) is None
    assert stack([matrix[:4], matrix[4:, :2]]) is None
    assert stack([matrix[:4], storage[13:19].view(2, 3)]) is None
    assert stack([matrix[:4], matrix[4:].t()]) is None
    assert stack([matrix[:4], matrix.view(torch.int32)[4:]]) is None
