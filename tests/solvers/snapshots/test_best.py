"""Which way is better is known by the layer, by the name, or by what the user says; else it is asked for."""

from types import SimpleNamespace

import pytest

from mgcaffe.engine import TestShard
from mgcaffe.errors import SolverError
from mgcaffe.solvers.events import OutputValue
from mgcaffe.solvers.snapshots.best import BestRule, BestScore


def net(count=1, test_iter=2, **outputs):
    """A net with outputs {name: layer type}; the outputs have `count` numbers."""
    layers = [SimpleNamespace(type=kind, param=SimpleNamespace(top=[name])) for name, kind in outputs.items()]
    blobs = {name: SimpleNamespace(count=count) for name in outputs}
    context = SimpleNamespace(shard=TestShard(0, 1, test_iter))
    return SimpleNamespace(outputs=sorted(outputs), layers=layers, blobs=blobs, loss_weights={}, context=context)


def better_of(text, nets, first, second):
    """Whether a second score beats a first one."""
    rule = BestRule(text, nets)
    name = text.removesuffix(":lower").removesuffix(":higher").split(":")[-1]
    scores = [[[OutputValue(0, name, value)]] * len(nets) for value in (first, second)]
    rule.best = rule.candidate(scores[0], 1)
    return rule.candidate(scores[1], 2) is not None


@pytest.mark.parametrize(
    ("text", "kind", "higher"),
    [
        ("a", "Accuracy", True),
        ("a", "SoftmaxWithLoss", False),
        ("a", "AUC", True),
        ("a", "NormalizedEntropy", False),
        ("top5", "Python", True),
        ("mean_error", "Reduction", False),
        ("a:higher", "Reduction", True),
        ("0:accuracy:lower", "Accuracy", False),
    ],
)
def test_the_direction(text, kind, higher):
    name = text.split(":")[1] if text[0] == "0" else text.split(":")[0]
    nets = [net(**{name: kind})]
    assert better_of(text, nets, 0.5, 0.6) == higher
    assert better_of(text, nets, 0.5, 0.4) != higher
    assert not better_of(text, nets, 0.5, 0.5)
    assert not better_of(text, nets, 0.5, float("nan"))


def test_the_first_net_that_has_the_output_counts_unless_one_is_named():
    nets = [net(loss="EuclideanLoss"), net(loss="EuclideanLoss", accuracy="Accuracy")]
    scores = [[OutputValue(0, "loss", 1.0)], [OutputValue(0, "loss", 2.0), OutputValue(1, "accuracy", 0.5)]]
    found = [BestRule(text, nets).candidate(scores, 3).value for text in ("loss", "1:loss", "accuracy")]
    assert found == [1.0, 2.0, 0.5]


@pytest.mark.parametrize(
    ("text", "count", "hint"),
    [("value", 1, 'say snapshot_best: "value:higher"'), ("value:lower", 3, "is 3 numbers")],
)
def test_what_cannot_be_compared_is_refused(text, count, hint):
    with pytest.raises(SolverError) as caught:
        BestRule(text, [net(count, value="Reduction")])
    assert hint in str(caught.value)


def test_a_net_that_runs_no_batch_of_a_test_has_no_best_score():
    nets = [net(test_iter=0, accuracy="Accuracy"), net(accuracy="Accuracy")]
    assert BestRule("accuracy", nets).candidate([[], [OutputValue(0, "accuracy", 0.5)]], 3).net == 1
    with pytest.raises(SolverError, match="needs a test net that is run, and test_iter is 0"):
        BestRule("0:accuracy", nets)
    with pytest.raises(SolverError, match="names 'other', which is no output of the test net\n") as caught:
        BestRule("other", [net(test_iter=0, other="Accuracy"), net(accuracy="Accuracy")])
    assert caught.value.hint == "the outputs are accuracy"


def test_a_best_score_is_taken_over_only_if_it_was_judged_alike():
    rule = BestRule("a:higher", [net(a="Power")])
    for score in (BestScore(0, "a", False, 1.0, 2), BestScore(1, "a", True, 1.0, 2), None):
        rule.resume(score)
        assert rule.best is None
    rule.resume(BestScore(0, "a", True, 1.0, 2))
    assert rule.best is not None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"net": [], "output": 1}'])
def test_bytes_that_are_no_score_are_none(content):
    assert BestScore.decode(content) is None
