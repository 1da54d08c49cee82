"""Rows in Criteo's format: one by one with located problems, and many at once."""

import numpy as np
import pytest

from mgcaffe.engine.data.criteo.rows import CATEGORIES, INTEGERS, MAX_ROW_BYTES, RowProblem, Rows, parse_row, parse_rows
from tests.support.criteokit import row, rows


def many(lines: list[bytes], between: bytes = b"") -> tuple[Rows, np.ndarray]:
    """What parse_rows makes of lines, with other bytes between them."""
    text = b"\n".join(line + b"\n" + between for line in lines)
    starts = np.cumsum([0, *(len(line) + len(between) + 2 for line in lines[:-1])])
    ends = starts + [len(line) for line in lines]
    return parse_rows(np.frombuffer(text, np.uint8), starts, ends)


def test_the_values_are_those_that_the_row_says():
    line = row(7, label="1", i2="-12", i3="", i4="999999999999999999", c1="", c2="0000000a", c3="FFFFFFFF", c4="abc")
    found = parse_row(line + b"\r")
    fields = line.decode().split("\t")
    assert found.labels.tolist() == [1]
    assert found.integers.tolist() == [[int(field or 0) for field in fields[1 : 1 + INTEGERS]]]
    assert found.categories.tolist() == [[int(field or "0", 16) for field in fields[1 + INTEGERS :]]]
    assert found.integers[0, :4].tolist() == [7, -12, 0, 10**18 - 1]
    assert found.categories[0, :4].tolist() == [0, 10, 2**32 - 1, 2748]


def test_a_category_of_16_digits_is_a_number_of_64_bits():
    assert parse_row(row(0, c26="f" * 16)).categories[0, -1] == 2**64 - 1


@pytest.mark.parametrize("between", [b"", b"1\t2\t\n3\n", b"\n\n"])
def test_many_rows_have_the_values_of_each(between):
    lines = rows(0, 40)
    found, right = many(lines, between)
    assert right.all()
    for number, line in enumerate(lines):
        one = parse_row(line)
        for name in ("labels", "integers", "categories"):
            np.testing.assert_array_equal(getattr(found, name)[number], getattr(one, name)[0])


BAD = {
    "one_column": (b"1", "has 1 column(s), not 40", 1),
    "nothing": (b"", "has 1 column(s), not 40", 1),
    "no_label": (row(0).partition(b"\t")[2], "has 39 column(s), not 40", 1),
    "a_column_more": (row(0) + b"\t", "has 41 column(s), not 40", 1),
    "label": (row(0, label="2"), "the label is '2', not 0 or 1", 1),
    "long_label": (row(0, label="11"), "the label is '11'", 1),
    "empty_label": (row(0, label=""), "the label is ''", 1),
    "letter": (row(0, i2="1x"), "integer 2 is '1x', no whole number", 5),
    "fraction": (row(0, i2="1.5"), "integer 2 is '1.5'", 5),
    "minus": (row(0, i1="-"), "integer 1 is '-'", 3),
    "two_signs": (row(0, i1="--1"), "integer 1 is '--1'", 3),
    "too_large": (row(0, i1="1" * 19), "integer 1 is '1111111111111111111', no whole number of at most 18", 3),
    "space": (row(0, i1=" 1"), "integer 1 is ' 1'", 3),
    "underscore": (row(0, i1="1_0"), "integer 1 is '1_0'", 3),
    "no_hex": (row(0, c26="0000000g"), "category 26 is '0000000g', not 1 to 16 hexadecimal digits", None),
    "prefix": (row(0, c1="0x000001"), "category 1 is '0x000001'", None),
    "long_hex": (row(0, c1="0" * 17), "category 1 is '00000000000000000'", None),
    "no_text": (row(0, i1="\x00\t").replace(b"\t\t", b"\xff\t", 1), "integer 1 is '\\x00\\xff'", 3),
    "long": (b"1" * (MAX_ROW_BYTES + 1), f"has over {MAX_ROW_BYTES} bytes", 1),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_row_is_a_located_problem_and_no_right_row_among_many(name):
    line, message, column = BAD[name]
    with pytest.raises(RowProblem) as caught:
        parse_row(line)
    assert message in caught.value.message
    field = message.split("'")[1] if column is None else ""
    assert caught.value.column == (column or line.index(field.encode()) + 1)
    for lines in ([row(1), line, row(2)], [line], [row(1), line]):
        _, right = many(lines)
        assert right.tolist() == [each is not line for each in lines]


def test_a_row_without_a_label_is_explained():
    with pytest.raises(RowProblem) as caught:
        parse_row(BAD["no_label"][0])
    assert caught.value.hint == "Criteo's test.txt has no labels, so it cannot be used here"


def test_rare_forms_are_left_to_the_parser_of_single_rows():
    lines = [row(0) + b"\r", row(1, c3="abc"), row(2, c3="0" * 16)]
    assert many(lines)[1].tolist() == [False] * 3
    assert [parse_row(line).categories.shape for line in lines] == [(1, CATEGORIES)] * 3
