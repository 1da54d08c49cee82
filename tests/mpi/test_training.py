"""Training over real MPI: two ranks with batch B see what one rank with batch 2B sees."""

import json
import subprocess
import sys

import pytest

from tests.support.mpirun import run_mpi
from tests.support.paths import ROOT
from tests.support.solverkit import write_data

pytestmark = pytest.mark.slow

SCHEDULES = ("single", "wfbp", "threshold", "mgwfbp", "optimal", "auto", "foreground")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """(of the one rank alone, [of rank 0, of rank 1], [of each of four ranks])."""
    folder = tmp_path_factory.mktemp("training")
    for name, ignored in (("plain", 0), ("ignored", 1)):
        (folder / name).mkdir()
        write_data(folder / name, records=203, classes=3, ignored=ignored)
    train = ["-m", "tests.support.programs.train", str(folder), "8"]
    subprocess.run([sys.executable, *train], check=True, timeout=120, cwd=ROOT)
    result = run_mpi(train, n=2, timeout=120, cwd=ROOT)
    assert result.returncode == 0 and not result.hung, result.describe()
    assert not result.left_behind
    four = run_mpi(train, n=4, timeout=120, cwd=ROOT)
    assert four.returncode == 0 and not four.hung, four.describe()

    def read(name):
        return json.loads((folder / f"{name}.json").read_text())

    return read("1-0"), [read("2-0"), read("2-1")], [read(f"4-{rank}") for rank in range(4)]


@pytest.mark.parametrize("data", ["plain", "ignored"])
@pytest.mark.parametrize(("dtype", "begins", "ends"), [("float32", 1e-5, 1e-4), ("float64", 1e-9, 1e-9)])
def test_two_ranks_train_as_one_with_twice_the_batch(results, data, dtype, begins, ends):
    alone, ranks, _ = results
    case = f"{data} {dtype}"
    expected = alone[case]["losses"]
    assert len(expected) == 50
    for rank in ranks:
        assert rank[case]["losses"][:20] == pytest.approx(expected[:20], rel=begins)
        assert rank[case]["losses"] == pytest.approx(expected, rel=ends)


def test_all_schedules_and_no_second_thread_give_the_same_bits_on_two_ranks(results):
    _, ranks, _ = results
    assert len({rank[schedule]["weights"] for rank in ranks for schedule in SCHEDULES}) == 1
    assert ranks[0]["single"]["losses"] == ranks[1]["optimal"]["losses"] == ranks[0]["auto"]["losses"]


def test_four_ranks_are_equal_to_the_bit_and_schedules_to_rounding(results):
    _, _, ranks = results
    for schedule in SCHEDULES:
        assert len({rank[schedule]["weights"] for rank in ranks}) == 1, schedule
        assert ranks[0][schedule]["values"] == pytest.approx(ranks[0]["single"]["values"], rel=1e-4, abs=1e-5)


def test_over_gloo_beside_mpi_two_ranks_get_the_same_bits(results):
    _, two, four = results
    assert {rank["gloo wfbp"]["weights"] for rank in two} == {two[0]["wfbp"]["weights"]}
    assert two[0]["gloo wfbp"]["losses"] == two[0]["wfbp"]["losses"]
    assert len({rank["gloo wfbp"]["weights"] for rank in four}) == 1
    assert four[0]["gloo wfbp"]["values"] == pytest.approx(four[0]["wfbp"]["values"], rel=1e-4, abs=1e-5)


def test_overlapping_the_next_forward_pass_changes_no_bit(results):
    _, two, _ = results
    for schedule in ("wfbp", "auto"):
        for rank in two:
            assert rank[f"overlap {schedule}"]["weights"] == rank[schedule]["weights"]
            assert rank[f"overlap {schedule}"]["losses"] == rank[schedule]["losses"]


def test_in_16_bits_schedules_give_the_same_bits_on_any_number_of_ranks(results):
    for ranks in results[1:]:
        for one, other in (("bfloat16 single", "bfloat16 wfbp"), ("float16 single", "float16 optimal")):
            assert len({rank[name]["weights"] for rank in ranks for name in (one, other)}) == 1
            assert ranks[0][one]["values"] == pytest.approx(ranks[0]["single"]["values"], rel=0.05, abs=0.01)
            assert ranks[0][one]["weights"] != ranks[0]["single"]["weights"]


def test_auto_tries_its_candidates_and_every_rank_ends_with_the_same_plan(results):
    for ranks in results[1:]:
        chosen = [rank["auto"]["plans"] for rank in ranks]
        assert all(plans == chosen[0] for plans in chosen)
        assert len(chosen[0]) == 1 and chosen[0][0].startswith("auto: ")


def test_ranks_with_different_nets_never_start(results):
    _, ranks, _ = results
    assert ranks[0]["disagreement"] == ranks[1]["disagreement"]
    assert "training net" in ranks[0]["disagreement"]
    assert "num_output: 6" in ranks[0]["disagreement"] and "num_output: 7" in ranks[0]["disagreement"]
