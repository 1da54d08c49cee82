"""Standard streams that are closed, full or broken, in processes of their own."""

import subprocess
import sys

import pytest

from mgcaffe.comm.supervision import standard_streams

RUN = """
import sys
from mgcaffe.comm import SingleCommunicator
from mgcaffe.comm.supervision.guard import run_guarded
from mgcaffe.errors import NetError

def main():
    {body}

sys.exit(run_guarded(main, SingleCommunicator))
"""


def ended(body, redirections, cwd=None):
    """Run a main function in a shell with redirections; the exit code and standard error."""
    program = RUN.format(body=body)
    result = subprocess.run(
        ["sh", "-c", f'"$0" -c "$1" {redirections}', sys.executable, program],
        capture_output=True, text=True, check=False, cwd=cwd,
    )  # fmt: skip
    return result.returncode, result.stderr


@pytest.mark.parametrize("count", [1, 100_000])
def test_output_that_cannot_be_written_is_one_message(count, monkeypatch):
    message = "error: cannot write to standard output: No space left on device\n"
    for unbuffered in ("", "1"):
        monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
        assert ended(f"print('x' * {count})", ">/dev/full") == (73, message)


def test_output_closed_at_its_other_end_is_one_message(monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    code = "import time; time.sleep(0.5); print('x')"
    assert ended(code, "| true") == (0, "error: standard output was closed before everything was printed\n")


@pytest.mark.parametrize(("body", "code"), [("return 75", 75), ("raise NetError('bad')", 65)])
def test_the_exit_code_stands_where_standard_error_takes_nothing(body, code, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    for redirection in ("2>/dev/full", "2>&-", "<&- >&- 2>&-"):
        assert ended(f"sys.stderr.write('x'); {body}", redirection) == (code, "")


def test_an_unrelated_error_is_reported_as_what_it_is(monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    code, said = ended("open('absent')", ">/dev/full")
    assert (code, "internal error: FileNotFoundError" in said) == (1, True)


def test_a_message_goes_nowhere_where_standard_error_was_closed(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    standard_streams.say("nobody reads this")
    standard_streams.flush_quietly()


def test_no_file_is_given_the_number_of_a_closed_stream(tmp_path):
    body = "import os; file = open('data', 'w'); os.write(2, b'of a library'); return file.fileno()"
    code, _ = ended(body, "2>&-", tmp_path)
    assert code > 2
    assert not (tmp_path / "data").read_bytes()
