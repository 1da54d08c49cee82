"""Tables and wrapped texts."""

from mgcaffe.tools.table import format_bytes, format_shape, format_table, output_width, table_lines, wrap_text


def test_tables_align():
    table = format_table(("name", "n"), [("a", "1"), ("long name", "100")], right=("n",))
    assert table.splitlines() == ["name         n", "---------  ---", "a            1", "long name  100"]
    assert format_shape((2, 3)) == "2x3"
    assert format_shape(()) == "scalar"
    assert [format_bytes(size) for size in (12, 2048, 3 << 20, 5 << 30)] == [
        "12 B", "2.0 KiB", "3.0 MiB", "5.00 GiB"
    ]  # fmt: skip


def test_a_cell_of_several_lines_takes_several_and_the_others_stay_beside_its_first():
    head, *rows = table_lines(("name", "shape", "n"), [("data", "4x3\n4", "12"), ("ip", "4x10", "5")], right=("n",))
    assert head == ["name  shape   n", "----  -----  --"]
    assert rows == [["data  4x3    12", "      4"], ["ip    4x10    5"]]


def test_text_is_wrapped_at_spaces_and_within_words_that_are_too_long():
    assert wrap_text("a-b c-d ef", 9, indent="  ") == ["  a-b c-d", "      ef"]
    assert wrap_text("short", 20) == ["short"]
    assert wrap_text("x" * 45, 20) == ["x" * 20, "    " + "x" * 16, "    " + "x" * 9]


def test_the_width_is_that_of_columns_and_otherwise_100_in_a_pipe(monkeypatch, capfd):
    monkeypatch.setenv("COLUMNS", "72")
    assert output_width() == 72
    monkeypatch.setenv("COLUMNS", "3")
    assert output_width() == 20
    monkeypatch.delenv("COLUMNS")
    assert output_width() == 100
