"""Files of loads: read, and refused with their place."""

import pytest

from mgcaffe.errors import DataError
from mgcaffe.solvers.tables.loads import CountedLoad, read_loads, write_loads


def write(folder, text):
    path = folder / "loads.csv"
    path.write_text(text)
    return path


def test_rows_by_table(tmp_path):
    path = write(tmp_path, "# measured\ntable,rows\none,12.5\n two , 0\n")
    assert read_loads(path, ["one", "two", "three"]) == {"one": 12.5, "two": 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table,rows\nfour,1\n", "no table in a layer 'four'"),
        ("table,rows\none,1\none,2\n", "'one' is listed twice"),
        ("table,rows\none,many\n", "'many' is no number of rows"),
        ("table,rows\none,-1\n", "'-1' is no number of rows"),
        ("table,rows\none,nan\n", "'nan' is no number of rows"),
        ("layer,rows\none,1\n", "no column 'table'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, text, message):
    with pytest.raises(DataError, match=message) as caught:
        read_loads(write(tmp_path, text), ["one", "two"])
    assert f"loads.csv:{1 if 'column' in message else text.count(chr(10))}" in str(caught.value.location)


def test_tables_in_layers_of_one_name_cannot_be_told_apart(tmp_path):
    path = write(tmp_path, "table,rows\none,1\ntwo,3\n")
    with pytest.raises(DataError, match="the net has 2 tables in layers called 'two'") as caught:
        read_loads(path, ["one", "two", "two"])
    assert "loads.csv:3" in str(caught.value.location) and "different names" in caught.value.hint
    with pytest.raises(DataError, match="the net has 2 tables in layers called 'two'"):
        write_loads(path, [CountedLoad("two", 3), CountedLoad("two", 1)])


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="cannot read a file of loads"):
        read_loads(tmp_path / "none.csv", ["one"])
