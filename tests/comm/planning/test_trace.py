"""Traces: read, written, and turned into what a schedule decides on."""

import pytest

from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.planning.trace import Trace, TraceLayer, fold, read_trace, write_trace
from mgcaffe.errors import DataError, EngineError
from tests.support.paths import GOLDEN

GOOGLENET = GOLDEN / "traces" / "googlenet_k80_batch64.csv"


def test_the_authors_trace_of_googlenet():
    trace = read_trace(GOOGLENET)
    assert (len(trace.layers), trace.elements) == (64, 13_379_136)
    assert trace.backward_s == pytest.approx(0.2053, abs=1e-4)
    assert trace.forward_s is None
    assert trace.layers[1] == TraceLayer("1", 4160, pytest.approx(3825.38e-6))


def test_what_is_written_reads_the_same(tmp_path):
    layers = (TraceLayer("conv,1", 10, 2.5e-3), TraceLayer("pool", 0, 0.0), TraceLayer("fc", 7, 1e-6))
    trace = Trace(layers, forward_s=4e-3)
    write_trace(tmp_path / "t.csv", trace, ["a net"])
    assert (tmp_path / "t.csv").read_text().splitlines()[:3] == [
        "# a net",
        "# forward_us: 4000",
        "layer,elements,backward_us",
    ]
    again = read_trace(tmp_path / "t.csv")
    assert [(layer.name, layer.elements) for layer in again.layers] == [("conv,1", 10), ("pool", 0), ("fc", 7)]
    assert [layer.backward_s for layer in again.layers] == pytest.approx([2.5e-3, 0, 1e-6])
    assert again.forward_s == pytest.approx(4e-3)


def test_a_layer_whose_name_begins_as_a_remark_is_read_again(tmp_path):
    write_trace(tmp_path / "t.csv", Trace((TraceLayer("#1", 10, 1.0), TraceLayer("fc", 7, 1.0))))
    assert [layer.name for layer in read_trace(tmp_path / "t.csv").layers] == ["#1", "fc"]


def test_a_spreadsheets_byte_order_mark_and_line_ends_do_not_matter(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbflayer,elements,backward_us\r\na,1,2\r\nb,3,4,\r\n")
    assert [layer.elements for layer in read_trace(tmp_path / "t.csv").layers] == [1, 3]


def test_layers_without_gradients_delay_those_below():
    trace = Trace((TraceLayer("a", 3, 4.0), TraceLayer("relu", 0, 2.0), TraceLayer("b", 5, 1.0)))
    assert trace.segments() == ([Segment("a", 0, 3), Segment("b", 3, 5)], [7.0, 1.0])
    folded = fold(trace.layers)
    assert folded == (TraceLayer("a", 3, 6.0), TraceLayer("b", 5, 1.0))
    assert Trace(folded).segments() == trace.segments()


def test_no_gradient_waits_for_what_lies_below_the_lowest():
    layers = (TraceLayer("data", 0, 0.5), TraceLayer("a", 3, 4.0))
    trace = Trace(fold(layers))
    assert trace.layers == layers
    assert trace.segments()[1] == [4.0] and trace.backward_s == 4.5


def test_a_faster_machine_takes_less_for_everything():
    trace = Trace((TraceLayer("a", 3, 4.0),), forward_s=2.0).scaled(0.25)
    assert (trace.backward_s, trace.forward_s, trace.elements) == (1.0, 0.5, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read a trace: No such file"),
        ("", "has no layer with gradients"),
        ("layer,elements\na,1\n", ":1:1: there is no column 'backward_us'"),
        ("# x\n\nlayer,elements,backward_us\na,1,2\nb,x,2\n", ":5:1: 'x' and '2' should be numbers"),
        ("layer,elements,backward_us\na,1\n", ":2:1: 2 values for 3 columns"),
        ("layer,elements,backward_us\na,1,2,5\n", ":2:1: 4 values for 3 columns"),
        ("layer,elements,backward_us\na,1,0\nb,2,0\n", "no layer of the trace takes any time"),
        ("layer,elements,backward_us\na,-1,2\n", ":2:1: layer 'a' has -1 elements and takes 2 us"),
        ("layer,elements,backward_us\na,1,nan\n", "takes nan us"),
        ("layer,elements,backward_us\na,0,1\n", "has no layer with gradients"),
        ("# forward_us: soon\nlayer,elements,backward_us\na,1,2\n", ":1:1: forward_us is 'soon', not a number"),
        ("# forward_us: inf\nlayer,elements,backward_us\na,1,2\n", ":1:1: forward_us is 'inf', not a number"),
        (f"layer,elements,backward_us\na,{10**400},2\n", ":2:1: layer 'a' has 1000"),
        ("layer,elements,backward_us\na,1,1e300\n", "takes 1e300 us"),
    ],
)
def test_what_is_no_trace_says_where(tmp_path, text, words):
    path = tmp_path / "t.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_trace(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


def test_a_trace_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(EngineError, match="cannot write") as caught:
        write_trace(tmp_path / "absent" / "t.csv", Trace((TraceLayer("a", 1, 1.0),)))
    assert caught.value.exit_code == 73
