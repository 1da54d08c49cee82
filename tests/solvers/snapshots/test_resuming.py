"""Where a run goes on from a snapshot that says less than ours do."""

import pytest

from mgcaffe.comm import run_ranks
from mgcaffe.prototxt import SolverState
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.snapshots.resuming import data_positions
from tests.support.solverkit import LEAST_SQUARES, Recorder, data_layer, make_solver, write_data


@pytest.mark.parametrize("tests_at_first", ["true", "false"])
def test_data_go_on_where_a_run_would_stand_that_has_written_a_snapshot_of_caffes(tmp_path, tests_at_first):
    """A test that is due at the snapshot's iteration has not been run, in Caffe neither."""
    listing = write_data(tmp_path)
    net = data_layer(listing, 3, "TRAIN") + data_layer(listing, 2, "TEST") + LEAST_SQUARES
    fields = f"iter_size: 2 test_iter: 3 test_iter: 1 test_interval: 2 test_initialization: {tests_at_first}"
    prefix = tmp_path / "net"

    def train(communicator):
        with make_solver(net, f"{fields} snapshot: 1", tmp_path, communicator=communicator) as solver:
            solver.snapshot()
            solver.step(4)

    def resume(communicator):
        found, recorder = [], Recorder()
        with make_solver(net, fields, tmp_path, communicator=communicator, recorder=recorder) as solver:
            for iteration in range(5):
                solver.restore(f"{prefix}_iter_{iteration}.solverstate")
                found.append(data_positions(solver.net, solver.test_nets))
        return found, recorder

    run_ranks(2, train)
    stored = []
    for iteration in range(5):
        path = tmp_path / f"net_iter_{iteration}.solverstate"
        path.with_name(f"{path.name}.manifest.json").unlink()
        state = SolverState.FromString(path.read_bytes())
        stored.append({each.layer: each.records for each in state.engine_state.records})
        state.ClearField("engine_state")
        path.write_bytes(state.SerializeToString())
    assert [each["data"] for each in stored] == [2 * 2 * 3 * iteration for iteration in range(5)]
    for found, recorder in run_ranks(2, resume):
        assert found == stored
        assert all("the snapshot doesn't say where the data stood" in each.text for each in recorder.of(Warned))
