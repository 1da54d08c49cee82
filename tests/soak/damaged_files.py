"""Damages the files of a snapshot: every flipped byte and every cut is found, named, and costs no memory.

A hundred flips and five cuts of each file, in both formats, with the manifest (which finds them all) and without it
(as with Caffe's snapshots: what still makes sense is used, everything else is one of our errors). Then files that
were made to harm: impossible shapes, values that are not there, nesting without end.

python -m tests.soak.damaged_files FLIPS CUTS     runs in a process whose memory is limited to 1 GiB above the start
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import torch

from mgcaffe.errors import EXIT_BAD_INPUT, EngineError
from mgcaffe.prototxt import BlobProto, NetParameter, SolverState, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.snapshots.manifest import manifest_path
from mgcaffe.solvers.snapshots.names import state_path
from tests.soak import Row, count

NAME = "damage"
SEED = 41
FLIPS, CUTS = 100, 5
MAX_BYTES = 1 << 30

_SOLVER = """
type: "{type}" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: 4 random_seed: 3 solver_mode: CPU
snapshot: 2 snapshot_prefix: "{folder}/net" snapshot_format: {form} snapshot_after_train: false
net_param {{ name: "small"
  layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 2 dim: 5 }} shape {{ dim: 2 dim: 3 }} data_filler {{ type: "gaussian" }} }} }}
  layer {{ name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
    inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
  layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }}
}}
"""
FORMS = ("BINARYPROTO", "HDF5")
Case = tuple[str, Callable[[], str | None]]


def run(full: bool) -> list[Row]:
    """All damages, or a twentieth of the flips and one cut a file; in a process of its own with little memory."""
    words = [str(FLIPS), str(CUTS)] if full else [str(FLIPS // 20), "1"]
    command = [sys.executable, "-m", "tests.soak.damaged_files", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = []
    for line in result.stdout.splitlines():
        check, cases, seconds, *failures = line.split("\t")
        rows.append(Row(check, int(cases), failures, "memory limited", float(seconds)))
    if result.returncode:
        ending = [f"ended with {result.returncode}", *result.stderr.splitlines()[-3:]]
        rows.append(Row("the process that reads damaged files", 1, ending))
    return rows


def main(flips: int, cuts: int) -> None:
    """Prints a line for each row, its fields divided by tabs."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        states = {form: _train(folder / form, form) for form in FORMS}
        _limit_memory()
        rows = [
            count("flipped bytes and cuts, with a manifest", _damages(states, flips, cuts, manifest=True)),
            count("flipped bytes and cuts, without one", _damages(states, flips, cuts, manifest=False)),
            count("hostile and mistaken files", _hostile(folder, states)),
        ]
    for row in rows:
        print(row.check, row.cases, f"{row.seconds:.1f}", *row.failures, sep="\t")


def _limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, resource.RLIM_INFINITY))


def _solver(folder: Path, form: str = "BINARYPROTO", kind: str = "SGD") -> Solver:
    source = parse_solver(_SOLVER.format(folder=folder, form=form, type=kind), file="solver.prototxt")
    return Solver(source.param, source=source)


def _train(folder: Path, form: str, kind: str = "SGD") -> Path:
    """Trains, and returns the last solverstate."""
    folder.mkdir()
    with _solver(folder, form, kind) as solver:
        solver.step(4)
    return state_path(folder / "net", 4, hdf5=form == "HDF5")


# -- damage ----------------------------------------------------------------------------------------------------


def _damages(states: dict[str, Path], flips: int, cuts: int, manifest: bool) -> Iterator[Case]:
    numbers = random.Random(SEED)
    for form, state in states.items():
        files = [state, state.with_name(state.name.replace(".solverstate", ".caffemodel"))]
        for file in [*files, manifest_path(state)] if manifest else files:
            whole = file.read_bytes()
            places = [numbers.randrange(len(whole)) for _ in range(flips)]
            for place in places:
                damaged = bytearray(whole)
                damaged[place] ^= 1 << numbers.randrange(8)
                yield (
                    f"{form}, {file.name}, bit of byte {place}",
                    partial(_check, state, file, bytes(damaged), manifest),
                )
            for length in [0, *(numbers.randrange(1, len(whole)) for _ in range(cuts - 1))][:cuts]:
                yield f"{form}, {file.name} cut at {length}", partial(_check, state, file, whole[:length], manifest)


def _check(state: Path, file: Path, damaged: bytes, must_find: bool) -> str | None:
    """Restores from a damaged snapshot, and puts it back as it was."""
    whole, manifest = file.read_bytes(), manifest_path(state)
    kept = manifest.read_bytes()
    file.write_bytes(damaged)
    if not must_find:
        manifest.unlink()
    try:
        found = _refusal(state)
    finally:
        file.write_bytes(whole)
        manifest.write_bytes(kept)
    if must_find and found is None:
        return "not found"
    if must_find and found is not None and file.name not in found:
        return f"the file is not named: {found}"
    return None if found is None or not found.startswith("!") else found[1:]


def _refusal(state: Path, kind: str = "SGD") -> str | None:
    """What a restore says against a snapshot, None if it takes it; what is no error of ours begins with `!`."""
    try:
        with _solver(state.parent, kind=kind) as solver:
            before = solver.net.arena.data.clone()
            try:
                solver.restore(str(state))
            except EngineError as error:
                if error.exit_code != EXIT_BAD_INPUT:
                    return f"!exit code {error.exit_code}: {error.message}"
                if len(str(error).splitlines()) > 2:
                    return f"!more than a line and a hint: {error}"
                return error.message if torch.equal(before, solver.net.arena.data) else "!the weights have changed"
    except Exception as error:
        return f"!{type(error).__name__}: {error}"
    return None


# -- files made to harm -------------------------------------------------------------------------------------------


def _hostile(folder: Path, states: dict[str, Path]) -> Iterator[Case]:
    for form, state in states.items():
        weights = state.with_name(state.name.replace(".solverstate", ".caffemodel"))
        yield f"{form}: a caffemodel as snapshot", partial(_refused, weights, "is a caffemodel")
        adam = _train(folder / f"adam {form}", form, "Adam")
        yield f"{form}: an Adam state given to SGD", partial(_refused, adam, "solver type Adam")
    yield "a folder as snapshot", partial(_refused, folder, "no file")
    yield "a device as snapshot", partial(_refused, Path("/dev/zero"), "no file")
    for name, content in _hostile_weights():
        yield f"caffemodel: {name}", partial(_with_weights, states["BINARYPROTO"], content)
    for name, content in _hostile_states():
        yield f"solverstate: {name}", partial(_with_state, states["BINARYPROTO"], content)
    for name, fill in _hostile_hdf5():
        for which in ("weights", "state"):
            yield f"HDF5 {which}: {name}", partial(_with_hdf5, states["HDF5"], which, fill)


def _refused(state: Path, expected: str) -> str | None:
    found = _refusal(state)
    return None if found is not None and expected in found and not found.startswith("!") else f"said {found}"


def _with_weights(state: Path, content: bytes) -> str | None:
    weights = state.with_name(state.name.replace(".solverstate", ".caffemodel"))
    problem = _check(state, weights, content, False)
    return problem or ("taken" if _taken(state, weights, content) else None)


def _with_state(state: Path, content: bytes) -> str | None:
    return _check(state, state, content, False) or ("taken" if _taken(state, state, content) else None)


def _taken(state: Path, file: Path, content: bytes) -> bool:
    whole, manifest = file.read_bytes(), manifest_path(state)
    kept = manifest.read_bytes()
    file.write_bytes(content)
    manifest.unlink()
    try:
        return _refusal(state) is None
    finally:
        file.write_bytes(whole)
        manifest.write_bytes(kept)


def _hostile_weights() -> Iterator[tuple[str, bytes]]:
    def net(*shape: int, values: int = 4) -> bytes:
        message = NetParameter(name="small")
        layer = message.layer.add(name="ip", type="InnerProduct")
        for wanted in (shape, (3,)):
            blob = layer.blobs.add()
            blob.shape.dim.extend(wanted)
            blob.data.extend([1.0] * (values if wanted is shape else 3))
        return message.SerializeToString()

    yield "dimensions of 2^31", net(2**31, 2**31)
    yield "dimensions whose product is 0 in 64 bits", net(2**32, 2**32)
    yield "a negative dimension", net(-3, -5, values=15)
    yield "more values than data", net(3, 5, values=14)
    yield "fewer dimensions than data", net(3, 5, values=16)
    yield "33 axes", net(*[1] * 33, values=1)
    legacy = NetParameter.FromString(net(3, 5))
    legacy.layer[0].blobs[0].num, legacy.layer[0].blobs[0].channels = 2**31 - 1, 2**31 - 1
    yield "old dimensions of 2^31 - 1", legacy.SerializeToString()
    yield "a hundred thousand groups inside each other", b"\x0b" * 100_000
    deep = b""
    for _ in range(2000):
        deep = b"\xa2\x06" + _varint(len(deep)) + deep  # layer { ... }, where no layer has layers
    yield "layers inside layers, two thousand deep", deep
    yield "a length beyond the end", b"\xa2\x06\xff\xff\xff\xff\x07"


def _hostile_states() -> Iterator[tuple[str, bytes]]:
    def state(*shape: int, values: int, **fields: int) -> SolverState:
        message = SolverState(**{"iter": 4, "learned_net": "net_iter_4.caffemodel", **fields})
        for wanted, number in ((shape, values), ((3,), 3)):
            blob = message.history.add()
            blob.shape.dim.extend(wanted)
            blob.data.extend([1.0] * number)
        return message

    yield "dimensions of 2^31", state(2**31, 2**31, values=4).SerializeToString()
    yield "a negative dimension", state(-3, -5, values=15).SerializeToString()
    yield "more values than data", state(3, 5, values=14).SerializeToString()
    yield "a negative iteration", state(3, 5, values=15, iter=-1).SerializeToString()
    yield "a negative step", state(3, 5, values=15, current_step=-1).SerializeToString()
    damaged = state(3, 5, values=15)
    damaged.engine_state.records.add(layer="data", records=-1)
    yield "a negative number of records", damaged.SerializeToString()
    ranks = state(3, 5, values=15)
    value = BlobProto(shape={"dim": [1]}, data=[1.0]).SerializeToString()
    ranks.engine_state.extra.add(key=f"recurrent_state/{10**15}/0/train/1/lstm", value=value)
    yield "the recurrent state of rank 10^15", ranks.SerializeToString()
    plan = state(3, 5, values=15)
    plan.engine_state.plan = "[" * 100_000
    yield "a plan without end", plan.SerializeToString()
    name = state(3, 5, values=15).SerializeToString().replace(b"net_iter_4", b"\xff\xfe_iter_4")
    yield "a name that is no text", name


def _hostile_hdf5() -> Iterator[tuple[str, Callable[[h5py.File], None]]]:
    def replace(file: h5py.File, make: Callable[[str], None]) -> None:
        path = "data/ip/0" if "data" in file else "history/0"
        del file[path]
        make(path)

    def shaped(*shape: int, kind: type = np.float32) -> Callable[[h5py.File], None]:
        return lambda file: replace(
            file, lambda path: file.create_dataset(path, shape, kind, chunks=tuple(min(size, 64) for size in shape))
        )

    yield "dimensions of 2^31, nothing stored", shaped(2**31, 2**31)
    yield "a right shape, nothing stored, 2^40 values", shaped(2**40)
    yield "another shape", lambda file: replace(file, lambda path: file.__setitem__(path, np.ones((5, 4), np.float32)))
    yield "text instead of numbers", lambda file: replace(file, lambda path: file.__setitem__(path, "one"))
    yield "a group instead of numbers", lambda file: replace(file, lambda path: file.create_group(path))
    yield "a link to itself", lambda file: replace(file, lambda path: file.__setitem__(path, h5py.SoftLink("/" + path)))


def _with_hdf5(state: Path, which: str, fill: Callable[[h5py.File], None]) -> str | None:
    file = state if which == "state" else state.with_name(state.name.replace(".solverstate", ".caffemodel"))
    whole = file.read_bytes()
    try:
        with h5py.File(file, "r+") as opened:
            fill(opened)
        content = file.read_bytes()
    finally:
        file.write_bytes(whole)
    return _check(state, file, content, False) or ("taken" if _taken(state, file, content) else None)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
