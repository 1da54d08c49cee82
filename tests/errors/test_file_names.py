"""What can be the name of a file."""

import os

import pytest

from mgcaffe.errors.file_names import found_name, is_there, shown_name, what_is_wrong_with_name


@pytest.mark.parametrize("name", ["", "a", "a/b c.txt", "/", "é" * 100, "x" * 255, "d/" * 2000, "x\udce9"])
def test_names_that_are_possible(name):
    assert what_is_wrong_with_name(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\0b", "holds a NUL byte"),
        ("x" * 256, "a part of it is 256 bytes long, and the name of a file has at most 255"),
        ("a/" + "é" * 128, "a part of it is 256 bytes long"),
        ("y/" * 2048, "it is 4096 bytes long, and a path has at most 4095"),
        ("a\ud800", "characters that no file's name can have"),
    ],
)
def test_names_that_are_not(name, problem):
    assert problem in what_is_wrong_with_name(name)


def test_an_ending_counts():
    assert "a part of it is 256 bytes long with '_iter_1' behind it" in what_is_wrong_with_name("x" * 249, "_iter_1")
    assert what_is_wrong_with_name("x" * 248, "_iter_1") is None


def test_a_name_is_found_in_utf8_or_else_by_its_bytes_in_latin_1(tmp_path):
    name = f"{tmp_path}/b\xe4ume"
    assert found_name(name) == name
    (tmp_path / os.fsdecode(b"b\xe4ume")).mkdir()
    assert found_name(name) == f"{tmp_path}/{os.fsdecode(bytes([98, 0xE4]) + b'ume')}"
    (tmp_path / "b\xe4ume").touch()
    assert found_name(name) == name
    for other in ("nowhere", "\u6811", "\xe4\0", "\xe4" * 300, "\ud800"):
        assert found_name(other) == other
        assert not is_there(other)


def test_a_name_is_shown_short_and_printable():
    assert shown_name("a\0b\n") == "a\\x00b\\n"
    assert shown_name("x" * 100) == "x" * 60 + "..."
