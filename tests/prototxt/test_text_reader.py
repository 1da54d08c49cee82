"""Reading text: everything that real files do, and errors that show the place."""

from __future__ import annotations

import logging
import math
import time

import pytest

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import (
    BlobProto,
    Datum,
    LayerParameter,
    NetParameter,
    PoolingParameter,
    SolverParameter,
    parse_net,
    parse_text,
)
from mgcaffe.prototxt.text_reader import parse


def refused(text: str, message_class=NetParameter, strict: bool = False) -> PrototxtError:
    with pytest.raises(PrototxtError) as caught:
        parse_text(text, message_class, file="net.prototxt", strict=strict)
    return caught.value


def place(error: PrototxtError) -> tuple[int, int]:
    assert error.location is not None
    return error.location.line, error.location.column


def convolution(text: str):
    return parse_text(f"convolution_param {{ {text} }}", LayerParameter).convolution_param


def test_comments_both_quotes_and_optional_colons():
    net = parse_text("# a net\nname: 'a' # its name\nlayer: { name: \"b\" }\nlayer { name: 'c' }", NetParameter)
    assert (net.name, [layer.name for layer in net.layer]) == ("a", ["b", "c"])


def test_angle_brackets_separators_and_several_fields_a_line():
    net = parse_text("layer < name: 'a', type: 'B'; bottom: 'c' top: 'd' >; name: 'n',", NetParameter)
    assert (net.name, net.layer[0].name, net.layer[0].type) == ("n", "a", "B")


def test_repeated_fields_by_repetition_and_in_lists():
    assert list(convolution("pad: 1 pad: [2, 3] pad: [] pad: [4]").pad) == [1, 2, 3, 4]
    net = parse_text("layer [ { name: 'a' }, < name: 'b' > ] layer: [{ name: 'c' }]", NetParameter)
    assert [layer.name for layer in net.layer] == ["a", "b", "c"]


def test_adjacent_strings_are_one():
    assert parse_text("name: 'a' \"b\"\n'c'", NetParameter).name == "abc"


def test_escapes():
    text = r"data: '\a\b\f\n\r\t\v\\\'\"\?\0\101\x41\xff\u00e9\U0001F600'"
    expected = b"\a\b\f\n\r\t\v\\'\"?\0AA\xff" + "é\U0001f600".encode()
    assert parse_text(text, Datum).data == expected


def test_integers_in_every_base():
    assert list(parse_text("dim: [10, 0x1F, 010, -3, -0x10]", BlobProto().shape.__class__).dim) == [
        10,
        31,
        8,
        -3,
        -16,
    ]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1", 1.0),
        ("-1.5", -1.5),
        ("- 2", -2.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e-2", 0.01),
        ("1E+2", 100.0),
        ("0.5f", 0.5),
        ("3F", 3.0),
        ("00.5", 0.5),
        ("07", 7.0),
        ("00", 0.0),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_floats(written, value):
    assert parse_text(f"double_data: {written}", BlobProto).double_data[0] == value


def test_nan():
    assert math.isnan(parse_text("data: nan", BlobProto).data[0])


@pytest.mark.parametrize(("written", "value"), [(w, True) for w in ("true", "True", "t", "1", "0x1")])
def test_true(written, value):
    assert parse_text(f"force_backward: {written}", NetParameter).force_backward is value


@pytest.mark.parametrize("written", ["false", "False", "f", "0"])
def test_false(written):
    net = parse_text(f"force_backward: {written}", NetParameter)
    assert net.force_backward is False
    assert net.HasField("force_backward")


def test_enums_by_name_and_number():
    assert parse_text("pool: AVE", PoolingParameter).pool == PoolingParameter.AVE
    assert parse_text("pool: 2", PoolingParameter).pool == PoolingParameter.STOCHASTIC


def test_a_byte_order_mark_and_foreign_comments_are_passed_over():
    text = b"\xef\xbb\xbfname: 'a' # \xc4\xe3 in GBK\n".decode("utf-8", "surrogateescape")
    assert parse_text(text, NetParameter).name == "a"


@pytest.mark.parametrize("text", ["name: 'gr\udcfc\udcdf'", r"name: 'gr\xfc\xdf'", r"name: 'gr\374\337'"])
def test_strings_that_are_not_utf8_are_read_as_latin_1_with_a_warning(text, caplog):
    assert parse_text(text, NetParameter, file="net.prototxt", strict=True).name == "gr\xfc\xdf"
    assert [record.message for record in caplog.records] == [
        "net.prototxt:1:1: name is not UTF-8 and is read as Latin-1, 'gr\xfc\xdf'; written again it is UTF-8"
    ]


def test_an_empty_message_counts_as_given():
    assert parse_text("state {}", NetParameter).HasField("state")


def test_unknown_field_warns_with_place_and_nearest_name(caplog):
    text = "layer {\n  name: 'c'\n  convolution_param { kernal_size: 3 num_output: 4 }\n}"
    net = parse_text(text, NetParameter, file="net.prototxt")
    assert net.layer[0].convolution_param.num_output == 4
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("mgcaffe.prototxt", logging.WARNING)
    assert record.getMessage() == (
        "net.prototxt:3:23: unknown field 'kernal_size' in convolution_param, ignored. Did you mean 'kernel_size'?"
    )


@pytest.mark.parametrize(
    "name",
    [
        *("quartet_loss_param", "center_loss_param", "ring_loss_param", "range_loss_param"),
        *("mixup_param", "st_param", "picpac_param", "rank_param"),
    ],
)
def test_a_message_of_a_fork_is_not_taken_for_another_layers(caplog, name):
    """They are alike only in `_loss` and `_param`."""
    parse_text(f"layer {{ name: 'c' {name} {{ }} }}", NetParameter, file="net.prototxt")
    (record,) = caplog.records
    assert record.getMessage() == f"net.prototxt:1:19: unknown field '{name}' in layer, ignored."


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("innerproduct_param", "inner_product_param"),
        ("convolutional_param", "convolution_param"),
        ("Pooling_param", "pooling_param"),
        ("accuarcy_param", "accuracy_param"),
        ("transform_params", "transform_param"),
        ("pool_param", "pooling_param"),
        ("softmax_loss_param", "softmax_param"),
    ],
)
def test_a_misspelled_message_is_recognised(caplog, name, meant):
    parse_text(f"layer {{ name: 'c' {name} {{ }} }}", NetParameter, file="net.prototxt")
    (record,) = caplog.records
    assert record.getMessage().endswith(f"Did you mean '{meant}'?")


@pytest.mark.parametrize(("name", "now"), [("blobs_lr: 2", "lr_mult"), ("weight_decay: 0", "decay_mult")])
def test_a_field_of_the_older_layers_says_what_it_became(caplog, name, now):
    """The nearest name of blobs_lr would be blobs, which is something else."""
    parse_text(f"layer {{ name: 'c' {name} }}", NetParameter, file="net.prototxt")
    (record,) = caplog.records
    assert f"belongs to the older 'layers'; in 'layer' write it as param {{ {now}: ... }}." in record.getMessage()


@pytest.mark.parametrize(
    ("text", "column", "what", "hint"),
    [
        ("layer { type: CONVOLUTION }", 15, "found 'CONVOLUTION'", "In 'layer' a type stands in quotes"),
        ("layer { param: 'w' }", 16, "a message in braces", "In 'layer' the name of shared weights is param { name:"),
        ("layers { type: 'ReLU' }", 16, "found the string 'ReLU'", "In the older 'layers' a type is a bare name"),
        (
            "layers { type: CROP }",
            16,
            "'CROP' for type. It belongs to a fork of Caffe, which works its offset out",
            'this one as type: "Crop" crop_param { axis: 2 offset: N }',
        ),
        (
            "layers { type: UNPOOLING }",
            16,
            "'UNPOOLING' for type. It belongs to a fork of Caffe, and is not supported.",
            "Leave the layer out, or write every layer as 'layer'",
        ),
        ("layers { param { lr_mult: 1 } }", 16, "expected ':'", "In the older 'layers' rates are blobs_lr: 1"),
    ],
)
def test_where_the_two_forms_of_a_layer_are_mixed_up_both_are_named(text, column, what, hint):
    error = refused(text)
    assert place(error) == (1, column)
    assert what in error.message
    assert hint in (error.hint or "")


@pytest.mark.parametrize("text", ["device_id: [0, 1]", "device_id: '0,1'", "device_id: 0\ndevice_id: 1"])
def test_several_devices_are_said_to_take_as_many_ranks(text):
    with pytest.raises(PrototxtError) as caught:
        parse_text(text, SolverParameter)
    assert "mpirun -n RANKS engine train SOLVER" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text", ["layer { type: 'A' type: 'B' }", "layer { type: ['A'] }", "layers { type: NONE type: BN }"]
)
def test_a_type_that_is_given_twice_has_no_hint_on_how_types_are_written(text):
    error = refused(text)
    assert "only once" in error.message or "given twice" in error.message
    assert error.hint is None


def test_only_a_type_of_older_layers_called_crop_is_that_of_a_fork():
    error = refused("layer { pooling_param { pool: CROP } }")
    assert "unknown value 'CROP' for pool" in error.message
    assert error.hint is None


def test_the_update_interval_of_a_fork_is_called_iter_size(caplog):
    parse_text("update_interval: 4", SolverParameter)
    (record,) = caplog.records
    assert record.getMessage().endswith("It belongs to a fork of Caffe; write it as iter_size.")


@pytest.mark.parametrize("comment", ["// a net", "/* a net */", "% a net"])
def test_comments_of_other_languages_have_a_hint(comment):
    error = refused(f'name: "n" {comment}')
    assert place(error) == (1, 11)
    assert error.hint == "Every line of a comment begins with #."


def test_a_path_with_backslashes_has_a_hint():
    error = refused(r'layer { data_param { source: "C:\models" } }')
    assert "unknown escape '\\m'" in error.message
    assert error.hint == r"In quotes a backslash begins an escape: write / in paths, and \\ for a backslash."


@pytest.mark.parametrize("escape", "abfnrtv")
def test_a_path_in_which_a_backslash_made_an_escape_is_refused_with_its_place(escape):
    text = f'layer {{\n data_param {{ source: "data\\{escape}rain" }} }}'
    with pytest.raises(PrototxtError) as caught:
        parse_net(text)
    assert place(caught.value) == (2, 15)
    assert f"in quotes \\{escape} is an escape, for one character" in caught.value.message
    assert caught.value.hint == "Write / in paths."


def test_a_file_whose_name_really_holds_a_tab_is_found(tmp_path):
    (tmp_path / "a\tb").touch()
    assert parse_net(f'layer {{ data_param {{ source: "{tmp_path}/a\\tb" }} }}').param.layer[0].data_param.source


def test_unknown_field_is_an_error_under_strict():
    error = refused("layer {\n\tconvolution_param { kernal_size: 3 }\n}", strict=True)
    assert place(error) == (2, 22)
    assert str(error) == (
        "net.prototxt:2:22: unknown field 'kernal_size' in convolution_param. Did you mean 'kernel_size'?\n"
        "  \tconvolution_param { kernal_size: 3 }\n"
        "  \t                    ^"
    )
    assert error.exit_code == 65


@pytest.mark.parametrize(
    "value",
    [
        ": 3",
        ": -inf",
        ": NAME",
        ": 'a' 'b'",
        ": [1, 2]",
        ": ['a', 'b']",
        "{ a: 1 b { c: 'd' } e < f: [1] > [x.y/z]: 3 }",
        ": < a: 1; b: 2, >",
        ": [{ a: 1 }, { b: 2 }]",
        ": []",
    ],
)
def test_values_of_unknown_fields_are_skipped(value, caplog):
    assert parse_text(f"wholly_unheard_of {value}\nname: 'after'", NetParameter).name == "after"
    assert len(caplog.records) == 1


def test_an_extension_is_an_unknown_field(caplog):
    assert parse_text("[some.extension] { a: 1 } name: 'n'", NetParameter).name == "n"
    assert "[some.extension]" in caplog.text


def test_unknown_enum_value_is_an_error():
    error = refused("pool: AVG kernel_size: 2", PoolingParameter)
    assert place(error) == (1, 7)
    assert "unknown value 'AVG' for pool (known: MAX, AVE, STOCHASTIC). Did you mean 'AVE'?" in str(error)
    assert place(refused("pool: 7", PoolingParameter)) == (1, 7)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("layer { name: 3 }", 1, 15, "name: expected a string in quotes, found '3'"),
        ("force_backward: maybe", 1, 17, "force_backward: expected true or false, found 'maybe'"),
        ("force_backward: 2", 1, 17, "expected true or false, found '2'"),
        ("force_backward: 'true'", 1, 17, "expected true or false, found the string 'true'"),
        (
            "input_dim: 1.5",
            1,
            12,
            "input_dim: expected an integer from -2147483648 to 2147483647, found '1.5'",
        ),
        ("input_dim: 08", 1, 12, "expected an integer"),
        ("input_dim: 3000000000", 1, 12, "input_dim: 3000000000 is out of range"),
        ("input_dim:\n -99999999999", 2, 2, "-99999999999 is out of range"),
        ("input_dim: " + "9" * 100_000, 1, 12, "out of range"),
        ("state: 3", 1, 8, "state: expected a message in braces, found '3'"),
        ("name: [ 'a' ]", 1, 7, "name: expected a string in quotes, found a list"),
        ("name 'a'", 1, 6, "expected ':' after 'name'"),
        ("name: 'a' name: 'b'", 1, 11, "'name' is given twice in NetParameter, first in line 1"),
        ("state {}\nstate {}", 2, 1, "'state' is given twice"),
        ("name: 'a", 1, 7, "this string is not closed before the end of its line"),
        ("name: 'a\nb'", 1, 7, "this string is not closed"),
        ("name: '\\q'", 1, 7, "unknown escape '\\q'"),
        ("name: '\\777'", 1, 7, "more than one byte"),
        ("name: '\\ud800'", 1, 7, "no character"),
        ("name: @", 1, 7, "unexpected character '@'"),
        ("name: 'a' }", 1, 11, "'}' closes nothing"),
        ("layer { name: 'a' >", 1, 19, "'>' closes nothing"),
        ("name:", 1, 6, "expected a string in quotes, found the end of the file"),
        ("input_dim: [1, 2", 1, 12, "the '[' of 'input_dim' is never closed"),
        ("input_dim: [1 2]", 1, 15, "expected ',' or ']'"),
        ("3: 4", 1, 1, "expected the name of a field of NetParameter, found '3'"),
        ("layer { clip_param { min: 1 } }", 1, 9, "clip_param needs 'max', which is missing"),
        ("layer { dropout_param { dropout_ratio: 1e39 } }", 1, 40, "'1e39' is too large for a float"),
        ("layer { loss_weight: 1e999 }", 1, 22, "too large"),
        ("layer { loss_weight: 1.2.3 }", 1, 22, "expected a number, found '1.2.3'"),
        ("layer { loss_weight: 3abc }", 1, 22, "expected a number, found '3abc'"),
        ("layer { loss_weight: 0x10 }", 1, 22, "expected a number, found '0x10'"),
        ("layer { loss_weight: -010 }", 1, 22, "'010' has a leading zero, by which some Caffes read it as octal"),
        ("name: 'a'\0", 1, 10, "a NUL byte"),
        ("name: 'a\0b'", 1, 9, "a NUL byte"),
        ("# comment \0", 1, 11, "a NUL byte"),
        ("name: \udcff", 1, 7, "the byte 0xff is not UTF-8 text"),
        ("[ab.c", 1, 1, "the '[' of a field's name is never closed"),
        ("unknown_one", 1, 12, "expected ':' after 'unknown_one'"),
        ("unknown_one: }", 1, 14, "expected a value for 'unknown_one'"),
        ("unknown_one: [[1]]", 1, 15, "a list lies inside a list"),
        ("unknown_one { a 3 }", 1, 17, "expected ':' after 'a'"),
    ],
)
def test_errors_name_what_and_where(text, line, column, says):
    error = refused(text)
    assert says in error.message
    assert place(error) == (line, column)


def test_an_unclosed_brace_is_named_by_its_opening():
    error = refused("layer {\n  name: 'a'\n  convolution_param {\n    num_output: 3\n}\nlayer { name: 'b' }\n")
    assert place(error) == (1, 7)
    assert "the '{' of 'layer' is never closed" in error.message
    assert error.hint == "A '}' seems to be missing before line 6, where 'layer' stands inside it."


def test_the_caret_stays_in_sight_in_a_long_line():
    error = refused("name: 'a' " * 1 + "layer { name: 'x' } " * 500 + "oops: 1", strict=True)
    _, excerpt, caret = str(error).splitlines()
    assert len(excerpt) < 120
    assert excerpt[caret.index("^") :].startswith("oops")


def test_nesting_is_limited():
    inner = "test_net_param { " * 1  # one level of another message, for a schema that nests
    assert parse_text(inner + "name: 'x' }", SolverParameter).test_net_param[0].name == "x"
    for unknown in ("a { " * 100_000, "a < " * 100_000, "a: [" * 100_000, "a { b: [ { c " * 50_000):
        assert refused(unknown).location is not None
    assert "which is too deep" in refused("a { " * 101).message


def test_endless_unknown_fields_are_given_up():
    assert "giving up" in refused("".join(f"unheard{i}: 1\n" for i in range(20_000))).message


def test_problems_of_files_that_fork_dialects_write(caplog):
    text = """
        default_forward_type: FLOAT16
        layer { name: 'd' type: 'Data' data_param { shuffle: true threads: 4 } forward_type: FLOAT }
        layer { name: 'q' quantization_param { bw_layer_in: 8 } engine: 'MKLDNN' }
        layer { name: 'r' roi_pooling_param { pooled_h: 7 } transform_param { resize_param { height: 300 } } }
    """
    assert parse_text(text, NetParameter, strict=True).layer[0].data_param.threads == 4
    solver = parse_text("larc: true min_lr: 0.1 warmup_iter: 5 plateau_winsize: 3", SolverParameter, strict=True)
    assert (solver.larc, solver.warmup_iter) == (True, 5)
    assert not caplog.records


def test_the_comm_parameters_are_read():
    text = "comm_param { schedule: MGWFBP bucket_mb: 2.5 calibration_iterations: 3 plan_file: 'plan.json' }"
    comm = parse_text(text, SolverParameter).comm_param
    assert (comm.schedule, comm.bucket_mb, comm.plan_file) == (comm.MGWFBP, 2.5, "plan.json")


def test_seven_thousand_lines_are_read_quickly():
    import time

    layer = "layer {\n name: 'c'\n type: 'Convolution'\n convolution_param {\n num_output: 3\n pad: 1\n}\n}\n"
    start = time.perf_counter()
    net = parse_text(layer * 900, NetParameter)
    assert len(net.layer) == 900
    assert time.perf_counter() - start < 2


def test_many_unknown_fields_in_one_line_cost_no_more_than_in_many():
    fields = [f"unknown{number}: {number}" + 1500 * " " for number in range(9_000)]
    seconds = []
    for separator in ("\n", ""):
        began = time.process_time()
        _, _, problems = parse(separator.join(fields), NetParameter)
        seconds.append(time.process_time() - began)
        assert "unknown5000: 5000" in problems.found[5000].excerpt
    assert seconds[1] < 3 * seconds[0] + 1
