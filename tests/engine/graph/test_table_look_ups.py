"""Look-ups of a pass travel together, and their gradients, as far as the ids are there."""

import pytest
import torch

from mgcaffe.engine.row_parameter import Placement
from mgcaffe.engine.tables.access import OwnedRows
from tests.support.netkit import inputs, make_net

BAG = """
layer {{ name: "{name}" type: "EmbeddingBag" bottom: "{bottom}" top: "{name}" {param}
  embedding_bag_param {{ input_dim: 5 num_output: 2 mode: MEAN weight_filler {{ type: "gaussian" std: 1 }} }} }}
"""
ENDS = 'layer { name: "loss" type: "Reduction" bottom: "join" top: "loss" loss_weight: 1 }'


def bag(name, bottom, param=""):
    return BAG.format(name=name, bottom=bottom, param=param)


def join(*names):
    bottoms = " ".join(f'bottom: "{name}"' for name in names)
    return f'layer {{ name: "join" type: "Concat" {bottoms} top: "join" }}'


# The ids of "late" are what another layer made of the sums of "one".
NET = "".join(
    [
        inputs(x=(3, 2), y=(3, 1)),
        bag("one", "x", 'param { name: "t" }'),
        bag("two", "y"),
        bag("frozen", "y", "param { lr_mult: 0 }"),
        bag("same", "y", 'param { name: "t" }'),
        'layer { name: "zero" type: "Power" bottom: "one" top: "zero" power_param { scale: 0 shift: 3 } }',
        bag("late", "zero", "propagate_down: false"),
        join("one", "two", "frozen", "same", "late"),
        ENDS,
    ]
)


class LocalAccess:
    """Answers from this process, and keeps what it was asked."""

    def __init__(self):
        self.owned = None
        self.asked = []
        self.given = []
        self.dropped = 0

    def place(self, tables):
        self.names = [table.layer.name for table in tables]
        self.counts = [table.look_ups for table in tables]
        self.owned = OwnedRows([table.parameter for table in tables])
        return [Placement(number, range(5), lambda kind, shape: None) for number in range(len(tables))]

    def look_up(self, look_ups):
        self.asked.append([self.names[each.table] for each in look_ups])
        access = self

        class Answer:
            def sums(self):
                return [access.owned.look_up(each.table, each.bags) for each in look_ups]

            def add_gradients(self, gradients):
                access.given.append([each is not None for each in gradients])
                for each, gradient in zip(look_ups, gradients, strict=True):
                    assert (gradient is not None) == each.trains
                    if gradient is not None:
                        access.owned.add_gradients(each.table, each.bags, gradient)

            def drop(self):
                access.dropped += 1

        return Answer()

    def gradients(self):
        return ()

    def forget_gradients(self):
        pass


def run(net):
    net.blobs["x"].data = torch.tensor([[0, 4], [1, 1], [2, 3.0]]).double()
    net.blobs["y"].data = torch.tensor([[4], [4], [0.0]]).double()
    net.clear_param_diffs()
    loss = net.forward_backward()
    return loss, [table.parameter.dense_diff() for table in net.arena.tables]


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_one_look_up_for_all_whose_ids_are_there(keep_blobs):
    access = LocalAccess()
    net = make_net(NET, place_tables=access.place, keep_blobs=keep_blobs)
    net.look_up_by(access)
    assert access.names == ["one", "two", "frozen", "late"] and access.counts == [9, 3, 3, 6]
    loss, gradients = run(net)
    assert access.asked == [["one", "two", "frozen", "one"], ["late"]]
    assert access.given == [[True], [True, True, False, True]]
    alone = make_net(NET, keep_blobs=keep_blobs)
    expected, others = run(alone)
    assert loss == pytest.approx(expected, rel=1e-14)
    for mine, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-14, atol=1e-14)


def test_a_pass_of_other_processes_is_taken_part_in_without_ids():
    access = LocalAccess()
    net = make_net(NET, place_tables=access.place)
    net.look_up_by(access)
    net.table_look_ups.take_part()
    assert access.asked == [["one", "two", "frozen", "one"], ["late"]]
    run(net)
    assert len(access.asked) == 4 and len(access.given) == 2


def test_a_net_that_shares_the_tables_looks_them_up_likewise():
    access = LocalAccess()
    net = make_net(NET, place_tables=access.place)
    test_net = make_net(NET, phase=1, share_with=net, keep_blobs=True)
    test_net.look_up_by(access)
    test_net.blobs["x"].data, test_net.blobs["y"].data = torch.zeros(3, 2).double(), torch.zeros(3, 1).double()
    test_net.forward()
    assert access.asked == [["one", "two", "frozen", "one"], ["late"]] and not access.given
