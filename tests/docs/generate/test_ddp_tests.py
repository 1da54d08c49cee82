"""The table of PyTorch's tests of DDP, docs/ddp_tests.md."""

from docs.generate import ddp_tests
from tests.support.torch_ddp_tests import PART, REFUSED, ROWS, RUNS


def test_the_page_shows_what_the_list_says_with_all_tests_passing():
    assert ddp_tests.render() == ddp_tests.PAGE.read_text(encoding="utf-8"), "python -m docs.generate.ddp_tests --write"


def test_a_test_that_fails_is_shown_and_counted():
    text = ddp_tests.render({"test_no_grad"})
    assert "| `test_c10d_nccl` | `test_no_grad` | **fails** |" in text and "| fails | 1 |" in text


def test_a_reason_is_given_for_every_test_that_is_not_run():
    for row in ROWS:
        assert row.outcome in (RUNS, PART) or not row.here.startswith("test_"), row.names
    assert any(row.outcome == REFUSED for row in ROWS)
