"""A solver's bad_record reaches the layers that read records."""

from mgcaffe.prototxt import SolverParameter, parse_net, parse_text
from mgcaffe.solvers.setup.nets import NetReader
from mgcaffe.solvers.setup.reader_fields import hand_down

NET = """
layer { name: "a" type: "Data" top: "a" data_param { source: "x" batch_size: 1 } }
layer { name: "b" type: "Data" top: "b" data_param { source: "x" batch_size: 1 bad_record: STOP bad_record_limit: 5 } }
layer { name: "c" type: "ImageData" top: "c" top: "d" image_data_param { source: "x" } }
layer { name: "e" type: "ReLU" bottom: "c" top: "e" }
"""


def handed_down(text):
    net = parse_net(NET).param
    hand_down(parse_text(text, SolverParameter), net)
    return net


def test_layers_that_say_nothing_take_the_solvers_rule():
    net = handed_down("bad_record: SKIP bad_record_limit: 7")
    found = [(layer.data_param.bad_record, layer.data_param.bad_record_limit) for layer in net.layer[:3]]
    assert found == [(1, 7), (0, 5), (1, 7)]
    assert not net.layer[3].HasField("data_param")


def test_nets_in_files_and_inside_the_solver_take_it(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    for net in (f'net: "{tmp_path}/net.prototxt"', f"net_param {{ {NET} }}"):
        choice = NetReader(parse_text(f"{net} bad_record: SKIP", SolverParameter)).train_net()
        assert [layer.data_param.bad_record for layer in choice.param.layer[:3]] == [1, 0, 1]


def test_a_solver_that_says_nothing_changes_nothing():
    assert handed_down("") == parse_net(NET).param
