"""Few rows and many go different ways to the same result."""

import pytest
import torch

from mgcaffe.engine.kernels.rows import add_to_rows, read_rows_of


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
