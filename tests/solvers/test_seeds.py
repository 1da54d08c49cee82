"""Random numbers of a run: those of each pass, and of a run that goes on from a snapshot."""

import functools

from mgcaffe.comm import run_ranks
from mgcaffe.solvers.events import Warned
from mgcaffe.solvers.events.testing import Tested
from tests.support.solverkit import DROPOUT, LEAST_SQUARES, Recorder, data_layer, make_solver, write_data


def test_every_pass_draws_random_numbers_of_its_own(tmp_path):
    """They differ between iterations, micro-batches and ranks, and those of tests between tests and batches."""
    noise = """layer { name: "noise" type: "DummyData" top: "data" top: "label" dummy_data_param {
      shape { dim: 2 dim: 4 } shape { dim: 2 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }"""

    def rank(communicator):
        seen = []

        def look(net, index):
            if net.layers[index].name == "noise":
                seen.append((net.phase, *net.blobs["data"].data.flatten().tolist()))

        fields, options = "iter_size: 2 test_iter: 4 test_interval: 1", {"communicator": communicator}
        with make_solver(noise + LEAST_SQUARES, fields, tmp_path, keep_blobs=True, **options) as solver:
            for net in (solver.net, *solver.test_nets):
                net.after_forward.append(functools.partial(look, net))
            solver.step(2)
        return seen

    seen = [values for each in run_ranks(2, rank) for values in each]
    assert len(seen) == len(set(seen)) == 2 * 2 * 2 + 2 * 4


def test_the_seed_of_the_snapshot_goes_on(tmp_path):
    listing = write_data(tmp_path, classes=3)
    net = data_layer(listing, 3) + DROPOUT
    recorder, warned = Recorder(), Recorder()
    with make_solver(net, "random_seed: 3 snapshot: 4", tmp_path, recorder=recorder) as solver:
        solver.step(8)
    with make_solver(net, "random_seed: 4", tmp_path, recorder=warned) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate")
        solver.step(4)
        assert solver.seed == 3
    assert warned.losses == recorder.losses[4:]
    assert "snapshot's seed 3, not with random_seed 4" in warned.of(Warned)[0].text


def test_a_drawn_seed_is_stored_too(tmp_path):
    """The order in which data are read follows from it as well, in training and in tests."""
    listing = write_data(tmp_path, classes=3)
    net = data_layer(listing, 3, "TRAIN") + data_layer(listing, 5, "TEST") + DROPOUT
    net = net.replace("batch_size", "shuffle: true batch_size")
    fields = "random_seed: -1 snapshot: 4 test_iter: 1 test_interval: 2"
    recorders = [Recorder(), Recorder()]
    with make_solver(net, fields, tmp_path, recorder=recorders[0]) as solver:
        solver.step(8)
    with make_solver(net, fields, tmp_path, recorder=recorders[1]) as solver:
        solver.restore(f"{tmp_path}/net_iter_4.solverstate")
        solver.step(4)
    assert recorders[1].losses == recorders[0].losses[4:]
    whole, resumed = ([event.scores for event in each.of(Tested)] for each in recorders)
    assert resumed == whole[2:]
    assert not recorders[1].of(Warned)
