"""What trainers tell each other, exchanged here by adding up their facts."""

from mgcaffe.comm.replicas.agreement import Agreement, Known
from mgcaffe.comm.replicas.figures import SyncFigures


def _exchange(trainers, done=(False, False), with_requests=True):
    """Let two trainers exchange their facts; return whether both then know that all are done."""
    figures = [SyncFigures(synchronizations=3, distance=0.5), SyncFigures(synchronizations=4, distance=0.25)]
    total = sum(
        trainer.facts(figures[rank], 10 + rank, is_done=done[rank], with_requests=with_requests)
        for rank, trainer in enumerate(trainers)
    )
    return [trainer.take(total) for trainer in trainers]


def test_all_know_how_far_each_has_come_and_when_the_last_is_done():
    trainers = [Agreement(rank, 2) for rank in range(2)]
    assert _exchange(trainers, (True, False)) == [False, False]
    assert all(each.known == Known((10, 11), (3, 4), (0.5, 0.25)) and each.exchanges == 1 for each in trainers)
    assert _exchange(trainers, (True, True)) == [True, True]


def test_a_stop_that_one_asks_for_is_heard_by_all_and_stays():
    trainers = [Agreement(rank, 2) for rank in range(2)]
    _exchange(trainers)
    assert not any(each.stop_requested for each in trainers)
    trainers[1].asks_for_stop = lambda: True
    _exchange(trainers)
    trainers[1].asks_for_stop = lambda: False
    _exchange(trainers)
    assert all(each.stop_requested for each in trainers)


def test_a_request_for_a_snapshot_is_passed_on_once_and_only_where_requests_are():
    trainers = [Agreement(rank, 2) for rank in range(2)]
    trainers[1].request_snapshot()
    _exchange(trainers, with_requests=False)
    assert not trainers[0].take_snapshot_request()
    _exchange(trainers)
    assert trainers[0].take_snapshot_request() and not trainers[1].take_snapshot_request()
    _exchange(trainers)
    assert not trainers[0].take_snapshot_request()
