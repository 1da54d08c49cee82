from mgcaffe.comm.tuning.drift import MAX_SEARCHES, DriftWatch


def window(watch, exposed, length):
    """Feed one window; returns what `judge` says."""
    for number in range(length):
        assert watch.add(exposed) == (number == length - 1)
    drift = watch.judge(watch.window)
    return None if drift is None else drift.expected


def expecting(exposed, backward=1.0, length=3):
    watch = DriftWatch(window=length)
    watch.expect(exposed, backward)
    return watch


def test_two_windows_in_a_row_clearly_above_are_drift():
    watch = expecting(0.2)
    assert window(watch, 0.5, 3) is None
    assert window(watch, 0.5, 3) == 0.2


def test_one_window_alone_or_a_little_more_is_none():
    watch = expecting(0.2)
    for exposed in (0.5, 0.2, 0.5, 0.29, 0.5, 0.0):
        assert window(watch, exposed, 3) is None


def test_an_uncertain_expectation_tolerates_more():
    for uncertainty, judged in ((0.15, 0.2), (0.3, None)):
        watch = DriftWatch(window=3)
        watch.expect(0.2, 1.0, uncertainty)
        assert window(watch, 0.5, 3) is None
        assert window(watch, 0.5, 3) == judged


def test_each_iterations_longest_waiting_of_all_ranks_counts():
    """As in the trials that the expectation comes from: two ranks that wait in turn make every iteration long."""
    watch = expecting(0.2)
    for judged in (None, (0.5, 0.2)):
        for exposed in (0.5, 0.1, 0.5):
            watch.add(exposed)
        assert watch.judge([max(pair) for pair in zip(watch.window, (0.1, 0.5, 0.1), strict=True)]) == judged


def test_outliers_within_a_window_do_not_count():
    watch = expecting(0.2, length=5)
    for _ in range(4):
        for exposed in (9.0, 0.2, 0.2, 9.0, 0.2):
            ended = watch.add(exposed)
        assert ended and watch.judge(watch.window) is None


def test_windows_become_longer_and_watching_ends():
    watch = expecting(0.2, length=2)
    length = 2
    for _ in range(MAX_SEARCHES):
        watch.expect(0.2, 1.0)
        assert window(watch, 0.5, length) is None
        assert window(watch, 0.5, length) == 0.2
        length *= 2
    assert not any(watch.add(9.0) for _ in range(1000))


def test_without_an_expectation_the_first_window_is_it():
    watch = expecting(None)
    assert window(watch, 0.4, 3) is None
    assert window(watch, 0.4, 3) is None
    assert window(watch, 0.9, 3) is None
    assert window(watch, 0.9, 3) == 0.4
