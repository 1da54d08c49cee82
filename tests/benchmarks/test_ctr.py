"""benchmarks/ctr.py times the nets that it says, and both sides compute the same."""

from __future__ import annotations

import ctr
import pytest
from ctr_nets import FORMS, net_text

from mgcaffe.prototxt import parse_net, read_net
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow


def sizes(net):
    """The types and sizes of the layers that compute, without the names of blobs."""
    return [
        (layer.type, layer.inner_product_param.num_output, layer.embedding_bag_param.input_dim)
        for layer in net.layer
        if layer.type in ("InnerProduct", "ReLU", "EmbeddingBag", "DotInteraction", "SigmoidCrossEntropyLoss")
    ]


def test_dlrm_kaggle_is_the_model_of_that_name():
    form = FORMS["dlrm_kaggle"]
    model = read_net(ROOT / "models" / "dlrm_kaggle" / "train_val.prototxt")
    assert sizes(parse_net(net_text(form, form.rows(26, 10**5), 128)).param) == sizes(model)


@pytest.mark.parametrize("kind", ["SGD", "AdaGrad"])
def test_both_sides_compute_the_same(kind):
    case = ctr.Case("dlrm_kaggle", kind, 26, 50, 8)
    ctr.check_equal(case, ctr.batches_of(case))
    assert ctr.compare(case, 1).startswith(f"| dlrm_kaggle | {kind} | 26 | 50 | 8 |")


def test_sides_that_differ_are_named():
    case = ctr.Case("small", "SGD", 1, 50, 8)
    with pytest.raises(SystemExit, match=r"type='SGD'.*the losses of both sides are 0.5 and 0.6"):
        ctr.check_losses(case, 0.5, 0.6, 1e-3)
