"""The displayed loss is the mean over the latest ones."""

from mgcaffe.solvers.monitor.smoothing import SmoothedLoss


def test_the_mean_spans_the_latest_losses_only():
    smoothed = SmoothedLoss(3)
    assert [smoothed.add(loss) for loss in (1, 2, 3, 4, 8)] == [1, 1.5, 2, 3, 5]


def test_a_window_that_is_taken_over_goes_on_with_the_same_digits():
    losses = [0.1 * index for index in range(20)]
    whole = SmoothedLoss(7)
    shown = [whole.add(loss) for loss in losses]
    first, second = SmoothedLoss(7), SmoothedLoss(7)
    for loss in losses[:11]:
        first.add(loss)
    second.restore(first.losses)
    second.restart()
    assert [second.add(loss) for loss in losses[11:]] == shown[11:]


def test_restarting_empties_the_window():
    smoothed = SmoothedLoss(4)
    smoothed.add(100)
    smoothed.restart()
    assert smoothed.losses == []
    assert smoothed.add(2) == 2
    smoothed.restore([1, 3])
    smoothed.restart()
    assert smoothed.losses == [1, 3]  # a resumed run goes on with them, once
    smoothed.restart()
    assert smoothed.losses == []
