"""`engine train`, `time` and `test` with --gpu, in this process."""

import pytest
import torch

from mgcaffe.tools import main
from tests.support.engine_command import NET, SOLVER


@pytest.fixture
def engine(tmp_path, monkeypatch, device, capfd):
    """Return a function that runs a command in a folder with a small net, and returns what it printed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)

    def run(*words):
        code = main.main(words)
        printed = capfd.readouterr()
        assert code == 0, printed.err[-2000:]
        return printed.out + printed.err

    return run


def test_training_testing_and_timing(engine, tmp_path, monkeypatch):
    assert "Using GPUs 0" in engine("train", "solver.prototxt", "--gpu=0", "--timeline=t.json")
    assert (tmp_path / "t.json").stat().st_size > 100
    assert "accuracy" in engine("test", "--model=net.prototxt", "--weights=tiny_iter_20.caffemodel", "--gpu=0")
    with monkeypatch.context() as patch:
        patch.setattr(torch.backends.cudnn, "benchmark", False)
        timed = engine(
            "time", "--model=net.prototxt", "--gpu=0", "--iterations=2", "--trace=t.csv", "--autotune=choices.json"
        )
        assert torch.backends.cudnn.benchmark
        engine("train", "solver.prototxt", "--gpu=0", "--autotune=choices.json", "--deterministic")
        assert not torch.backends.cudnn.benchmark
    assert "Average Forward-Backward" in timed and (tmp_path / "t.csv").exists()
    assert "Total global memory" in engine("device_query", "--gpu=0")
