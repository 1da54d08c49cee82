"""Sizes that no machine has are refused at their place before PyTorch is asked; an allocation that fails is named."""

import re
import resource

import pytest
import torch

from mgcaffe.engine.checks import memory as machine
from mgcaffe.engine.checks import sizes
from mgcaffe.engine.net import Net
from mgcaffe.errors import EngineError, NetError
from mgcaffe.prototxt import parse_net

INPUT = 'layer {{ name: "data" type: "Input" top: "data"\n  input_param {{ shape {{ {} }} }} }}\n'
SMALL = INPUT.format("dim: 1 dim: 10")


def layer(kind, fields, more='bottom: "data"'):
    return f'layer {{ name: "l" type: "{kind}" {more}\n  top: "y" {fields} }}\n'


def net_file(tmp_path, text):
    file = tmp_path / "net.prototxt"
    file.write_text(text)
    return file


@pytest.fixture
def memory(monkeypatch):
    """`memory(bytes)` is what the machine has."""

    def have(size):
        monkeypatch.setattr(machine, "machine_memory", lambda: size)
        machine.device_memory.cache_clear()

    have(16 << 30)
    yield have
    monkeypatch.undo()
    machine.device_memory.cache_clear()


HAS = r"and this machine has 16\.0 GiB of memory"
NEVER = "more than any machine can address"
PARAMETER = r"3:1: parameter 0 of shape"
CASES = {
    "num_output of 2^32": (
        SMALL + layer("InnerProduct", "inner_product_param { num_output: 4294967295 }"),
        rf"{PARAMETER} 4294967295x10 would take 160\.0 GiB, {HAS} \(layer 'l', type InnerProduct\)",
    ),
    "10^15 weights": (
        INPUT.format("dim: 1 dim: 1000000") + layer("InnerProduct", "inner_product_param { num_output: 1000000000 }"),
        rf"{PARAMETER} 1000000000x1000000 would take 3\.73e\+06 GiB, {HAS}",
    ),
    "filters": (
        INPUT.format("dim: 1 dim: 3 dim: 8 dim: 8")
        + layer("Convolution", "convolution_param { num_output: 2147483647 kernel_size: 3 }"),
        rf"{PARAMETER} 2147483647x3x3x3 would take 216\.0 GiB, {HAS}",
    ),
    "weights that overflow": (
        SMALL + layer("Embed", "embed_param { input_dim: 2147483647 num_output: 2147483647 }"),
        rf"{PARAMETER} 2147483647x2147483647 would take 1\.72e\+10 GiB, {NEVER} \(layer 'l', type Embed\)",
    ),
    "a parameter of a user's": (
        layer("Parameter", "parameter_param { shape { dim: 4000000000 dim: 4000000000 } }", ""),
        rf"1:1: parameter 0 of shape 4000000000x4000000000 would take 5\.96e\+10 GiB, {NEVER}",
    ),
    "an input": (
        INPUT.format("dim: 1000000 dim: 1000000"),
        rf"2:17: top blob 'data' of shape 1000000x1000000 would take 3,725\.3 GiB, {HAS} \(layer 'data', type Input\)",
    ),
    "an input that overflows": (
        INPUT.format("dim: 1000000 dim: 1000000 dim: 1000000 dim: 1000000"),
        rf"2:17: top blob 'data' of shape 1000000x1000000x1000000x1000000 would take 3\.73e\+15 GiB, {NEVER}",
    ),
    "an input of 2^63": (INPUT.format("dim: 9223372036854775807"), rf"shape 9223372036854775807 would .* {NEVER}"),
    "data that is made up": (
        layer("DummyData", "dummy_data_param { shape { dim: 1000000 dim: 1000000 } }", ""),
        rf"2:3: top blob 'y' of shape 1000000x1000000 would take 3,725\.3 GiB, {HAS}",
    ),
    "tiles": (
        SMALL + layer("Tile", "tile_param { tiles: 2147483647 }"),
        rf"4:3: top blob 'y' of shape 1x21474836470 would take 80\.0 GiB, {HAS} \(layer 'l', type Tile\)",
    ),
    "padding": (
        INPUT.format("dim: 1 dim: 3 dim: 8 dim: 8")
        + layer("Convolution", "convolution_param { num_output: 1 kernel_size: 1 pad: 2000000000 }"),
        rf"4:3: top blob 'y' of shape 1x1x4000000008x4000000008 would take 5\.96e\+10 GiB, {NEVER}",
    ),
    "a new size": (
        INPUT.format("dim: 1 dim: 3 dim: 8 dim: 8")
        + layer("Interp", "interp_param { height: 2000000000 width: 20000 }"),
        rf"4:3: top blob 'y' of shape 1x3x2000000000x20000 would take 447,034\.8 GiB, {HAS}",
    ),
    "a recurrence": (
        INPUT.format("dim: 4 dim: 2 dim: 3")
        + 'layer { name: "cont" type: "Input" top: "cont" input_param { shape { dim: 4 dim: 2 } } }\n'
        + layer("LSTM", "recurrent_param { num_output: 2147483647 }", 'bottom: "data" bottom: "cont"'),
        rf"4:1: parameter 0 of shape 8589934588x3 would take 96\.0 GiB, {HAS} \(layer 'l', type LSTM\)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_absurd_sizes_are_refused_at_their_place(tmp_path, memory, name):
    text, message = CASES[name]
    with pytest.raises(NetError) as caught:
        Net.from_file(net_file(tmp_path, text))
    said = str(caught.value)
    assert said.startswith(str(tmp_path / "net.prototxt")) and re.search(message, said), said
    assert caught.value.exit_code == 65


def test_parameters_that_fit_only_one_by_one_are_refused_together(tmp_path, memory):
    text = SMALL + "".join(
        f'layer {{ name: "l{size}" type: "InnerProduct" bottom: "data" top: "y{size}"'
        f" inner_product_param {{ num_output: {size} bias_term: false }} }}\n"
        for size in (40, 60, 50)
    )
    memory(2 * (40 + 60 + 50) * 10 * 4)
    assert Net.from_file(net_file(tmp_path, text)).arena.data.numel() == 1500
    memory(2 * (40 + 60 + 50) * 10 * 4 - 1)
    with pytest.raises(NetError, match=r"4:1: all parameters with their gradients, the largest being parameter 0 of"):
        Net.from_file(net_file(tmp_path, text))


def test_a_net_that_is_only_looked_at_may_be_larger_than_the_memory(tmp_path, memory):
    file = net_file(tmp_path, SMALL + layer("Tile", "tile_param { tiles: 2147483647 }"))
    assert Net.from_file(file, outline=True).blobs["y"].shape == (1, 21474836470)


def test_a_size_that_comes_while_the_net_runs_is_refused_too(tmp_path, memory):
    net = Net.from_file(net_file(tmp_path, SMALL + layer("Tile", "tile_param { tiles: 1000 }")))
    net.forward()
    memory(39_999)
    net.layers[0].values = [torch.zeros(1, 10)]
    net.forward()  # the shapes are the old ones
    net.layers[0].values = [torch.zeros(2, 10)]
    with pytest.raises(NetError, match=r"4:3: top blob 'y' of shape 2x10000 would take"):
        net.forward()


ALLOCATOR = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes."


@pytest.mark.parametrize("error", [RuntimeError(ALLOCATOR), MemoryError()], ids=["RuntimeError", "MemoryError"])
@pytest.mark.parametrize("doing", ["forward", "backward"])
@pytest.mark.parametrize("keep", [True, False], ids=["one by one", "fused"])
def test_an_allocation_that_fails_names_the_layer(tmp_path, monkeypatch, doing, error, keep):
    text = "force_backward: true\n" + INPUT.format("dim: 1 dim: 3 dim: 8 dim: 8")
    text += layer("Convolution", "convolution_param { num_output: 2 kernel_size: 1 }")
    text += 'layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }'
    net = Net.from_file(net_file(tmp_path, text), keep_blobs=keep)
    step = next(step for step in net.steps if 1 in step.members)

    def fail(*arguments):
        raise error

    if doing == "backward":
        net.forward()
    monkeypatch.setattr(step.layer, doing, fail)
    asked = ": tried to allocate 4.0 GiB" if isinstance(error, RuntimeError) else ""
    with pytest.raises(EngineError) as caught:
        getattr(net, doing)()
    assert not isinstance(caught.value, NetError) and caught.value.exit_code == 1
    message = f"net.prototxt:4:1: out of memory{asked}, {doing} (top 'y') (layer 'l', type Convolution)"
    assert message in str(caught.value)


def test_other_mistakes_of_a_layer_stay_what_they_are(tmp_path, monkeypatch):
    net = Net.from_file(net_file(tmp_path, SMALL + layer("Tile", "tile_param { tiles: 2 }")))
    error = RuntimeError("shapes do not fit")

    def fail(*arguments):
        raise error

    monkeypatch.setattr(net.layers[1], "forward", fail)
    with pytest.raises(RuntimeError) as caught:
        net.forward()
    assert caught.value is error


@pytest.mark.parametrize(
    ("files", "size"),
    [
        ({"proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nSwapTotal: 24 kB\n"}, 1024 << 10),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "sys/fs/cgroup/memory.max": "5000\n"}, 5000),
        ({"proc/meminfo": "MemTotal: 1000 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, 1000 << 10),
        ({"proc/meminfo": "MemTotal: 1 kB\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2**63 - 4096}"}, 1024),
        ({}, 2**63 - 1),
    ],
)
def test_memory_is_the_machines_or_the_containers(tmp_path, files, size):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.machine_memory(tmp_path) == size


def test_an_allocation_of_more_than_half_of_the_memory_is_the_nets_mistake(memory):
    memory(8 << 30)
    node = Net(parse_net(SMALL + layer("ReLU", "")).param).layers[1]
    for size, kind, code in ((5 << 30, NetError, 65), (3 << 30, EngineError, 1)):
        error = RuntimeError(f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {size} bytes.")
        with pytest.raises(kind, match=r"out of memory: tried to allocate \d\.0 GiB, forward") as caught:
            sizes.explain(node, "forward", error)
        assert caught.value.exit_code == code


def test_the_memory_of_a_process_ends_at_its_limit(monkeypatch, tmp_path):
    limit = (2 << 30, resource.RLIM_INFINITY)
    monkeypatch.setattr(machine.resource, "getrlimit", lambda kind: limit if kind == resource.RLIMIT_AS else (-1, -1))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8388608 kB\nSwapTotal: 1048576 kB\n")
    (tmp_path / "proc/self/statm").write_text(f"{(1 << 30) // resource.getpagesize()} 7 7\n")
    assert machine.machine_memory(tmp_path) == 1 << 30
    limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert machine.machine_memory(tmp_path) == 9 << 30


def test_memory_that_is_free_ends_at_the_limits_of_the_container_and_the_process(monkeypatch, tmp_path):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: unlimited)
    assert machine.free_memory(tmp_path) == machine.MAX_BYTES
    for folder in ("proc/self", "sys/fs/cgroup"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")
    (tmp_path / "proc/self/statm").write_text(f"{(1 << 30) // resource.getpagesize()} 7 7\n")
    assert machine.free_memory(tmp_path) == 4 << 30
    (tmp_path / "sys/fs/cgroup/memory.max").write_text(f"{5 << 30}\n")
    (tmp_path / "sys/fs/cgroup/memory.current").write_text(f"{3 << 30}\n")
    assert machine.free_memory(tmp_path) == 2 << 30
    (tmp_path / "sys/fs/cgroup/memory.stat").write_text(f"anon {1 << 30}\ninactive_file {1 << 30}\nactive_file 7\n")
    assert machine.free_memory(tmp_path) == 3 << 30
    (tmp_path / "sys/fs/cgroup/memory.stat").unlink()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 << 29, resource.RLIM_INFINITY))
    assert machine.free_memory(tmp_path) == 1 << 29
