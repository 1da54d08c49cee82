"""Log lines that parsers of Caffe's logs read."""

from __future__ import annotations

import io
import logging
import os
import re

import pytest

from mgcaffe.tools.listeners.glog import log_line, number, start_logging

_PREFIX = r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] "


@pytest.fixture
def stream():
    text = io.StringIO()
    start_logging(True, text)
    return text


def test_lines_carry_glogs_prefix_and_caffes_place(stream):
    log_line("Iteration 100, lr = 0.01", "sgd_solver.cpp:105")
    assert re.fullmatch(_PREFIX + "Iteration 100, lr = 0.01\n", stream.getvalue())
    assert "sgd_solver.cpp:105] " in stream.getvalue()


def test_a_line_of_our_own_names_its_own_place(stream):
    log_line("hello")
    assert "test_glog.py:" in stream.getvalue()


def test_warnings_of_every_package_come_out_as_w_lines(stream):
    logging.getLogger("mgcaffe.engine.anything").warning("unknown field '%s'", "x")
    assert re.fullmatch("W" + _PREFIX[6:] + "unknown field 'x'\n", stream.getvalue())


def test_bytes_that_are_no_utf8_are_written_as_escapes():
    bytes_of_file = io.BytesIO()
    start_logging(True, io.TextIOWrapper(bytes_of_file, encoding="utf-8", write_through=True))
    log_line(f"image '{os.fsdecode(b'caf' + bytes([0xE9]))}'")
    assert bytes_of_file.getvalue().endswith(b"] image 'caf\\udce9'\n")


def test_a_message_of_several_lines_has_one_prefix(stream):
    log_line("one\ntwo")
    assert re.fullmatch(_PREFIX + "one\ntwo\n", stream.getvalue())


def test_other_ranks_are_silent(capsys):
    start_logging(False)
    log_line("nothing")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.2604, "0.2604"), (1.0, "1"), (1e-5, "1e-05"), (123456789.0, "1.23457e+08"), (float("nan"), "nan"),
     (0.00992565, "0.00992565"), (1 / 3, "0.333333"), (100.0, "100")],
)  # fmt: skip
def test_numbers_look_as_in_cpp(value, text):
    assert number(value) == text
