"""Values in nets and solvers that no machine can honour: one located message, exit code 65, no traceback."""

import pytest

LAYER = """name: "n"
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ {shape} }} }} }}
layer {{ name: "l" type: "{kind}" bottom: "x" top: "y"
{fields} }}
"""
IMAGE = "dim: 2 dim: 3 dim: 4 dim: 5"
NUL, LONG = "a\\000b", "x" * 300


def net(kind, fields, shape=IMAGE):
    return LAYER.format(kind=kind, fields=fields, shape=shape)


def source(kind, fields):
    return f'layer {{ name: "d" type: "{kind}" top: "a" top: "b"\n{fields} }}\n'


def check(result, place, words):
    assert result.returncode == 65, result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and errors[0].startswith(f"error: {place}") and words in errors[0], result.stderr
    assert "Traceback" not in result.stderr and len(errors[0]) < 500


@pytest.mark.parametrize("name", [NUL, LONG, "d/" * 2500])
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Data", 'data_param {{ batch_size: 1 source: "{}" }}'),
        ("Data", 'transform_param {{ mean_file: "{}" }} data_param {{ batch_size: 1 source: "x" }}'),
        ("HDF5Data", 'hdf5_data_param {{ batch_size: 1 source: "{}" }}'),
        ("CriteoData", 'top: "c" criteo_data_param {{ batch_size: 1 table_size: 1 source: "x" source: "{}" }}'),
        ("CriteoData", 'top: "c" criteo_data_param {{ batch_size: 1 source: "x" dictionary: "{}" }}'),
        ("ImageData", 'image_data_param {{ batch_size: 1 source: "{}" }}'),
        ("ImageData", 'image_data_param {{ batch_size: 1 source: "x" root_folder: "{}" }}'),
        ("WindowData", 'window_data_param {{ batch_size: 1 source: "{}" }}'),
    ],
)
def test_names_of_sources_that_no_file_can_have(engine, kind, fields, name):
    engine.write("n.prototxt", source(kind, fields.format(name)))
    check(engine.run("time", "n.prototxt"), "n.prototxt:2:", " is '")


@pytest.mark.parametrize("name", [NUL, LONG])
def test_other_names_that_no_file_can_have(engine, name):
    engine.write("n.prototxt", net("HDF5Output", f'hdf5_output_param {{ file_name: "{name}" }}'))
    check(engine.run("time", "n.prototxt"), "n.prototxt:4:", "file_name is '")
    engine.write("n.prototxt", net("InfogainLoss", f'infogain_loss_param {{ source: "{name}" }}'))
    check(engine.run("time", "n.prototxt"), "n.prototxt:4:", "source is '")


@pytest.mark.parametrize("name", [NUL, LONG])
@pytest.mark.parametrize("field", ["weights", "snapshot_prefix", "net", "plan_file", "cost_file"])
@pytest.mark.parametrize("flags", [[], ["--dry_run"]])
def test_names_in_a_solver(engine, field, name, flags):
    text = f'{field}: "{name}"'
    solver = "\n".join(line for line in engine.solver.splitlines() if not line.startswith(f"{field}:"))
    inner = f"comm_param {{\n{text} }}" if field.endswith("_file") else f"\n{text}"
    engine.write("solver.prototxt", f"{solver}\n{inner}\n")
    check(engine.run("train", "solver.prototxt", *flags), "solver.prototxt:", f"{field} is '")


def test_a_prefix_leaves_room_for_what_is_written_behind_it(engine):
    engine.write("solver.prototxt", engine.solver.replace('"tiny"', '"' + "p" * 220 + '"'))
    check(engine.run("train", "solver.prototxt"), "solver.prototxt:10:1", "a part of it is ")


def test_names_on_the_command_line(engine):
    for words in (
        ["train", LONG],
        ["train", "solver.prototxt", f"--weights=a,{LONG}"],
        ["log", LONG],
        ["report", LONG],
    ):
        result = engine.run(*words)
        assert result.returncode == 2 and "a part of it is 300 bytes long" in result.stderr


def test_names_inside_a_list(engine):
    engine.write("list.txt", f"a.h5\n{LONG}\n")
    engine.write("n.prototxt", source("HDF5Data", 'hdf5_data_param { batch_size: 1 source: "list.txt" }'))
    check(engine.run("time", "n.prototxt"), "list.txt:2:1", "names no file: a part of it is 300 bytes long")
    engine.write("list.txt", f"{LONG} 1\n")
    engine.write("n.prototxt", source("ImageData", 'image_data_param { batch_size: 1 source: "list.txt" }'))
    check(engine.run("time", "n.prototxt"), "list.txt:1:1", "names no file: a part of it is 300 bytes long")
    engine.write("list.txt", f"a.png {'9' * 50}\n")
    check(engine.run("time", "n.prototxt"), "list.txt:1:1", "9 does not fit into 32 bits")
    crop = "transform_param { crop_size: 3 }"
    engine.write("list.txt", f"# 0\n{LONG}\n3\n9\n9\n0\n")
    engine.write("n.prototxt", source("WindowData", crop + ' window_data_param { batch_size: 1 source: "list.txt" }'))
    check(engine.run("time", "n.prototxt"), "list.txt:2:1", "names no file: a part of it is 300 bytes long")


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
def test_devices_are_no_files(engine, name):
    engine.write("n.prototxt", source("HDF5Data", f'hdf5_data_param {{ batch_size: 1 source: "{name}" }}'))
    check(engine.run("time", "n.prototxt"), "n.prototxt:2:", "it is a device or a socket, not a file")
    assert "it is a device" in engine.run("log", name).stderr
    assert "it is a device" in engine.run("report", name).stderr
    assert "it is a device" in engine.run("train", "solver.prototxt", f"--plan_file={name}").stderr


MANY = " ".join(70 * ["dim: 1"])


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("MVN", ""),
        ("Normalize", "norm_param { across_spatial: true }"),
        ("Reduction", ""),
        ("ReLU", ""),
        ("Flatten", ""),
    ],
)
def test_more_axes_than_a_blob_can_have(engine, kind, fields):
    engine.write("n.prototxt", net(kind, fields, MANY))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:2:", "70 axes, and a blob has at most 32")
    check(engine.run("summary", "n.prototxt"), "n.prototxt:2:", "70 axes")


def test_reshaping_to_more_axes_than_a_blob_can_have(engine):
    engine.write("n.prototxt", net("Reshape", f"reshape_param {{ shape {{ dim: 0 {MANY} dim: -1 }} }}"))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:3:", "72 axes, and a blob has at most 32")


FILLERS = ("value: {}", 'type: "uniform" max: {}', 'type: "uniform" min: {}', 'type: "gaussian" mean: {}', "std: {}")


@pytest.mark.parametrize("value", ["inf", "-inf"])
@pytest.mark.parametrize("filler", FILLERS)
def test_fillers_that_are_not_finite(engine, filler, value):
    text = filler.format(value)
    fields = f"inner_product_param {{ num_output: 2\nweight_filler {{ {text} }} }}"
    engine.write("n.prototxt", net("InnerProduct", fields))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:3:", "has to be finite")
    engine.write(
        "n.prototxt", source("DummyData", f"dummy_data_param {{ shape {{ dim: 2 }} data_filler {{ {text} }} }}")
    )
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:2:", "has to be finite")


def test_a_uniform_filler_wider_than_float32(engine):
    filler = 'weight_filler { type: "uniform" min: -3e38 max: 3e38 }'
    engine.write("n.prototxt", net("InnerProduct", f"inner_product_param {{ num_output: 2 {filler} }}"))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:3:", "too wide for float32")


@pytest.mark.parametrize("fields", ["scale: 1e38 base: 1e38 shift: 1", "scale: -1e38 base: 1e38 shift: inf"])
def test_factors_that_float32_cannot_hold(engine, fields):
    engine.write("n.prototxt", net("Exp", f"exp_param {{ {fields} }}"))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:3:", "too large for float32")


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
def test_an_lrn_window_far_larger_than_the_blob(engine, region):
    engine.write("n.prototxt", net("LRN", f"lrn_param {{ local_size: 4294967295 norm_region: {region} }}"))
    assert engine.run("time", "n.prototxt", "--iterations=1").returncode == 0


@pytest.mark.parametrize("command", ["summary", "time"])
def test_a_batch_of_nothing(engine, command):
    fields = "inner_product_param { num_output: 2 }"
    engine.write("n.prototxt", net("InnerProduct", fields, "dim: 0 dim: 3"))
    result = engine.run(command, "n.prototxt")
    assert result.returncode == 0, result.stderr
    engine.write("n.prototxt", net("InnerProduct", fields, "dim: 2 dim: 0"))
    assert engine.run(command, "n.prototxt").returncode == 0


@pytest.mark.parametrize("shape", ["dim: 2 dim: 0 dim: 4 dim: 5", "dim: 2 dim: 3 dim: 0 dim: 5"])
@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("Convolution", "convolution_param { num_output: 2 kernel_size: 3 pad: 2 }"),
        ("Deconvolution", "convolution_param { num_output: 2 kernel_size: 3 }"),
        ("Pooling", "pooling_param { kernel_size: 3 pad: 2 }"),
        ("Pooling", "pooling_param { global_pooling: true }"),
        ("LRN", ""),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"),
        ("Interp", "interp_param { height: 3 width: 3 }"),
    ],
)
def test_images_of_nothing(engine, kind, fields, shape):
    engine.write("n.prototxt", net(kind, fields, shape))
    check(engine.run("time", "n.prototxt", "--iterations=1"), "n.prototxt:3:", "so there is nothing in its images")


def test_a_batch_of_nothing_whose_axes_no_machine_can_count(engine):
    engine.write("n.prototxt", net("ReLU", "", "dim: 0 dim: 4611686018427387904 dim: 4"))
    check(engine.run("time", "n.prototxt"), "n.prototxt:2:", "more than any machine can address")
