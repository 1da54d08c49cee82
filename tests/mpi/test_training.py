"""Training over real MPI: two ranks with batch B see what one rank with batch 2B sees."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCHEDULES = ("single", "wfbp", "mgwfbp", "optimal")


@pytest.fixture(scope="module")
def results(run_mpi, tmp_path_factory):
    """(of the one rank alone, [of rank 0, of rank 1])."""
    folder = tmp_path_factory.mktemp("training")
    writer = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from solverkit import write_data\n"
        "for name, ignored in (('plain', 0), ('ignored', 1)):\n"
        "    folder = Path(sys.argv[2]) / name; folder.mkdir()\n"
        "    write_data(folder, records=203, classes=3, ignored=ignored)\n"
    )
    subprocess.run([sys.executable, "-c", writer, str(HERE.parent / "solvers"), str(folder)], check=True)
    subprocess.run([sys.executable, str(HERE / "train.py"), str(folder), "8"], check=True, timeout=120)
    result = run_mpi([HERE / "train.py", folder, "8"], n=2, timeout=120)
    assert result.returncode == 0 and not result.hung, result.describe()
    assert not result.left_behind

    def read(name):
        return json.loads((folder / f"{name}.json").read_text())

    return read("1-0"), [read("2-0"), read("2-1")]


@pytest.mark.parametrize("data", ["plain", "ignored"])
@pytest.mark.parametrize(("dtype", "begins", "ends"), [("float32", 1e-5, 1e-4), ("float64", 1e-9, 1e-9)])
def test_two_ranks_train_as_one_with_twice_the_batch(results, data, dtype, begins, ends):
    alone, ranks = results
    case = f"{data} {dtype}"
    expected = alone[case]["losses"]
    assert len(expected) == 50
    for rank in ranks:
        assert rank[case]["losses"][:20] == pytest.approx(expected[:20], rel=begins)
        assert rank[case]["losses"] == pytest.approx(expected, rel=ends)


def test_all_schedules_give_the_same_bits_on_two_ranks(results):
    _, ranks = results
    assert len({rank[schedule]["weights"] for rank in ranks for schedule in SCHEDULES}) == 1
    assert ranks[0]["single"]["losses"] == ranks[1]["optimal"]["losses"]


def test_ranks_with_different_nets_never_start(results):
    _, ranks = results
    assert ranks[0]["disagreement"] == ranks[1]["disagreement"]
    assert "training net" in ranks[0]["disagreement"]
    assert "num_output: 6" in ranks[0]["disagreement"] and "num_output: 7" in ranks[0]["disagreement"]
