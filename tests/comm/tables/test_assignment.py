"""Assignment of tables to owners: complete, within memory, balanced, and the same whoever works it out."""

import numpy as np
import pytest

from mgcaffe.comm.tables.assignment import RowRange, TableLoad, TooLargeError, assign_tables, table_loads

ROOM = 10**9


def cases(count):
    """Random tables, and the memory of random owners; some have too little."""
    random = np.random.default_rng(11)
    for _ in range(count):
        tables = [
            TableLoad(
                rows=int(random.integers(1, 10 ** random.integers(1, 5))),
                length=int(random.integers(1, 65)),
                row_bytes=int(random.integers(4, 512)),
                looked_up=None if random.random() < 0.1 else float(random.zipf(1.5)),
            )
            for _ in range(random.integers(1, 30))
        ]
        owners = int(random.integers(1, 10))
        total = sum(table.bytes for table in tables)
        yield tables, [int(total * random.random() * 2.5 / owners) for _ in range(owners)]


def load(rows, looked_up=None, length=1, row_bytes=4):
    return TableLoad(rows, length, row_bytes, looked_up)


def test_every_row_has_one_owner_with_memory_for_it_or_a_table_is_refused():
    refused = 0
    for tables, memory in cases(120):
        try:
            assignment = assign_tables(tables, memory)
        except TooLargeError as error:
            # What is left is less than the table, or than one row for each owner.
            assert 0 <= error.free < tables[error.table].bytes + 512 * len(memory)
            refused += 1
            continue
        check(tables, memory, assignment)
        assert assign_tables(list(tables), list(memory)) == assignment
    assert 10 < refused < 80


def check(tables, memory, assignment):
    used = [0] * len(memory)
    for table, ranges in zip(tables, assignment, strict=True):
        assert [part.first for part in ranges] == [0, *(part.last for part in ranges[:-1])]
        assert ranges[-1].last == table.rows and all(part.first < part.last for part in ranges)
        owners = [part.owner for part in ranges]
        assert owners == sorted(set(owners))
        for part in ranges:
            used[part.owner] += (part.last - part.first) * table.row_bytes
    assert all(mine <= room for mine, room in zip(used, memory, strict=True))


def test_no_owner_has_more_than_its_share_and_the_largest_table_that_is_not_divided():
    for tables, memory in cases(120):
        owners = len(memory)
        assignment = assign_tables(tables, [ROOM] * owners)
        carried = [0.0] * owners
        for table, value, ranges in zip(tables, table_loads(tables), assignment, strict=True):
            for part in ranges:
                carried[part.owner] += value * (part.last - part.first) / table.rows
        assert sum(carried) == pytest.approx(sum(table_loads(tables)))
        fair = sum(carried) / owners
        # A row cannot be divided, so evenly means to a row of each table that is.
        rows = sum(value / table.rows for value, table in zip(table_loads(tables), tables, strict=True))
        assert max(carried) <= (2 * fair + rows) * (1 + 1e-9)


def test_equal_tables_are_dealt_out_whole():
    assignment = assign_tables([load(100, 10) for _ in range(6)], [ROOM] * 3)
    assert sorted(part.owner for ranges in assignment for part in ranges) == [0, 0, 1, 1, 2, 2]
    assert all(len(ranges) == 1 for ranges in assignment)


def test_a_table_with_too_much_load_is_divided_by_rows():
    assignment = assign_tables([load(7, 1), load(10, 100)], [ROOM] * 2)
    assert assignment[1] == [RowRange(0, 0, 5), RowRange(1, 5, 10)]
    assert assignment[0] == [RowRange(0, 0, 7)]


def test_a_table_too_large_for_each_is_divided_as_far_as_each_has_memory():
    (ranges,) = assign_tables([load(100, 1)], [40, 240, 280])
    assert ranges == [RowRange(0, 0, 10), RowRange(1, 10, 55), RowRange(2, 55, 100)]
    (ranges,) = assign_tables([load(100, 1)], [40, 161, 240])
    assert ranges == [RowRange(0, 0, 10), RowRange(1, 10, 50), RowRange(2, 50, 100)]


def test_without_counts_of_every_table_rows_times_length_are_the_load():
    assert table_loads([load(10, 5, 2), load(20, None, 3)]) == [20, 60]
    assert table_loads([load(10, 5, 2), load(20, 1, 3)]) == [10, 3]


def test_too_large_a_table_is_named():
    with pytest.raises(TooLargeError) as caught:
        assign_tables([load(10, 5), load(1000, 1)], [100, 200])
    assert (caught.value.table, caught.value.free) == (1, 260)
