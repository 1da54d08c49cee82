"""What `mutated_inputs` mutates: valid inputs of every kind in a folder, and the commands that read them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from mgcaffe.prototxt import BlobProto, NetParameter, SolverParameter, parse_text
from mgcaffe.prototxt.blobs import fill_blob
from tests.soak.mutations import mutate_bytes, mutate_json, mutate_json_lines, mutate_message, mutate_table
from tests.support.criteokit import rows, write
from tests.support.datakit import file_bytes, images, numbered
from tests.support.fork_nets import FORK_NETS

Case = tuple[list[str], str]
"""The words of a command, and what was mutated."""

_GOLDEN = Path(__file__).parents[1] / "golden" / "layers"
# Fields that only say how long to compute, and the most that a case may ask for.
_AMOUNTS = {"iter_size": 2, "max_iter": 3, "average_loss": 10}

_HEAD = """name: "small" layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
"""
_BODY = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 4
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
_SOLVER = """net: "small.prototxt" base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 2 momentum: 0.9 max_iter: 3
display: 1 test_iter: 1 test_interval: 2 snapshot: 2 snapshot_prefix: "small" random_seed: 7 solver_mode: CPU
weight_decay: 0.01 comm_param { plan_file: "" }"""

_TRANSFORM = 'transform_param { crop_size: 4 mirror: true scale: 0.5 mean_file: "mean.binaryproto" }'
_SOURCES = {
    "lmdb": 'type: "Data" data_param { source: "records" backend: LMDB batch_size: 2 } transform_param { scale: 2 }',
    "hdf5": 'type: "HDF5Data" hdf5_data_param { source: "hdf5.txt" batch_size: 2 }',
    "images": 'type: "ImageData" image_data_param { source: "images.txt" batch_size: 2 root_folder: "./" } '
    + _TRANSFORM,
    "windows": 'type: "WindowData" window_data_param { source: "windows.txt" batch_size: 4 fg_fraction: 0.5 }'
    " transform_param { crop_size: 4 }",
    "criteo": 'top: "ids" type: "CriteoData" criteo_data_param { source: "rows.tsv" source: "rows.gz" batch_size: 4'
    ' dictionary: "dictionary" table_size: 9 } data_param { bad_record: SKIP bad_record_limit: 9 }',
}  # fmt: skip

_TRACE = "# forward_us: 500\nlayer,elements,backward_us\nconv1,20,100.5\npool,0,3\nip,300,50\n"
_COSTS_CSV = "# measured\nnodes,bytes,latency_us\n4,1024,100\n4,4096,150\n4,65536,300\n8,1024,200\n"
_CURVE = {"kind": "curve", "points": [[1024, 1e-3], [4096, 2e-3], [65536, 4e-3]]}
_COSTS = {
    "all_reduce_costs": [
        {"hosts": {"a": 2, "b": 2}, "ranks": 4, "mpi": "Open MPI", "transport": "float32", "polled": _CURVE,
         "busy_polled": _CURVE, "blocking": _CURVE}
    ]
}  # fmt: skip
_TEXT_LOG = """I0101 10:00:00.000000 123 solver.cpp:45] Solving tiny
I0101 10:00:01.000000 123 solver.cpp:218] Iteration 0 (50.1 iter/s, 1.99s/100 iters), loss = 2.26
I0101 10:00:01.500000 123 solver.cpp:237]     Train net output #0: loss = 2.26 (* 1 = 2.26 loss)
I0101 10:00:01.600000 123 sgd_solver.cpp:105] Iteration 0, lr = 0.01
I0101 10:00:02.000000 123 solver.cpp:330] Iteration 100, Testing net (#0)
I0101 10:00:03.000000 123 solver.cpp:397]     Test net output #0: accuracy = 0.9785
"""


def read_plan_file(words: list[str]) -> int:
    """Read the plan file in the second word for the net that it was made for."""
    from mgcaffe.comm.planning.plan import Segment
    from mgcaffe.comm.planning.plan_file import read_plan

    read_plan(words[1], [Segment("conv1", 0, 20), Segment("ip", 20, 300)], 4)
    return 0


class Inputs:
    """Valid inputs in a folder, and what makes a case of each kind.

    Attributes:
        kinds: functions that write a mutated input and return the command that reads it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._nets = {path.name: (path / "net.prototxt").read_text() for path in sorted(_GOLDEN.iterdir())}
        self._nets |= FORK_NETS
        self.kinds: list[Callable[[random.Random], Case]] = [
            self.layer, self.layer, self.layer, self.net, self.net_bytes, self.solver, self.solver,
            self.source_fields, self.source_files, self.weights, self.edit, self.json_log, self.timeline,
            self.predictions, self.text_log, self.plan_file, self.costs, self.costs_table, self.trace,
        ]  # fmt: skip
        self._make_files()
        self._valid = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def restore(self) -> None:
        """Undo what the last case has written."""
        for path in self._folder.rglob("*"):
            if path.is_file() and path not in self._valid:
                path.unlink()
        for path, content in self._valid.items():
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)

    # -- nets and solvers ------------------------------------------------------------------------------------

    def layer(self, numbers: random.Random) -> Case:
        """A net of one layer, with its fields changed."""
        name = numbers.choice(list(self._nets))
        net = parse_text(self._nets[name], NetParameter)
        index = numbers.randrange(len(net.layer))
        layer = NetParameter(layer=[net.layer[index]])
        del net.layer[index:]
        rest = parse_text(self._nets[name], NetParameter).layer[index + 1 :]
        mutate_message(layer.layer[0], numbers, numbers.choice((1, 1, 2)))
        net.layer.extend([layer.layer[0], *rest])
        return self._use_net(net, name, numbers)

    def net(self, numbers: random.Random) -> Case:
        """The same with fields of the net."""
        name = numbers.choice(list(self._nets))
        net = parse_text(self._nets[name], NetParameter)
        mutate_message(net, numbers, numbers.choice((1, 2, 3)))
        return self._use_net(net, name, numbers)

    def _use_net(self, net: Any, name: str, numbers: random.Random) -> Case:
        from mgcaffe.prototxt import print_text

        self._write("net.prototxt", print_text(net))
        if numbers.random() < 0.3:
            return ["summary", "net.prototxt"], name
        return ["time", "net.prototxt", "--iterations=1"], name

    def net_bytes(self, numbers: random.Random) -> Case:
        """A net as text or binary with bytes changed."""
        name = numbers.choice(list(self._nets))
        content = self._nets[name].encode()
        if numbers.random() < 0.5:
            content = parse_text(self._nets[name], NetParameter).SerializeToString()
        (self._folder / "net.prototxt").write_bytes(mutate_bytes(content, numbers))
        return [numbers.choice(("summary", "time")), "net.prototxt"], name

    def solver(self, numbers: random.Random) -> Case:
        """A solver with its fields changed."""
        solver = parse_text(_SOLVER, SolverParameter)
        if numbers.random() < 0.3:
            solver.ClearField("net")
            solver.net_param.CopyFrom(parse_text(_HEAD + _BODY, NetParameter))
        mutate_message(solver, numbers, numbers.choice((1, 1, 2, 3)))
        for field, most in _AMOUNTS.items():
            if getattr(solver, field) > most:
                setattr(solver, field, most)
        if any(count > 2 for count in solver.test_iter):
            del solver.test_iter[:]
        from mgcaffe.prototxt import print_text

        self._write("solver.prototxt", print_text(solver))
        return ["train", "solver.prototxt", *(["--dry_run"] if numbers.random() < 0.3 else [])], "solver"

    # -- data and weights ------------------------------------------------------------------------------------

    def source_fields(self, numbers: random.Random) -> Case:
        """A data layer with its fields changed."""
        name = numbers.choice(list(_SOURCES))
        net = parse_text(self._source_net(name), NetParameter)
        mutate_message(net.layer[0], numbers, numbers.choice((1, 1, 2)))
        return self._use_net(net, name, numbers)

    def source_files(self, numbers: random.Random) -> Case:
        """A data layer whose files are changed."""
        name = numbers.choice(list(_SOURCES))
        path = self._folder / numbers.choice(
            {
                "lmdb": ["records/data.mdb"],
                "hdf5": ["hdf5.txt", "rows.h5", "rows.h5", "rows.h5"],
                "images": ["images.txt", "0.png", "mean.binaryproto"],
                "windows": ["windows.txt", "0.png"],
                "criteo": ["rows.tsv", "rows.gz", "dictionary"],
            }[name]
        )
        content = path.read_bytes()
        if path.suffix == ".txt" and numbers.random() < 0.7:
            self._write(path.name, mutate_table(content.decode(), numbers))
        else:
            path.write_bytes(mutate_bytes(content, numbers))
        self._write("net.prototxt", self._source_net(name))
        return ["test", "net.prototxt", "--weights=small.caffemodel", "--iterations=2"], str(path.name)

    def weights(self, numbers: random.Random) -> Case:
        """A file of weights with bytes or fields changed."""
        name = numbers.choice(("small.caffemodel", "small.caffemodel", "small.h5"))
        path = self._folder / name
        if name.endswith(".caffemodel") and numbers.random() < 0.5:
            net = NetParameter.FromString(path.read_bytes())
            mutate_message(net, numbers, 2)
            path.write_bytes(net.SerializePartialToString())
        else:
            path.write_bytes(mutate_bytes(path.read_bytes(), numbers))
        return ["test", "small.prototxt", f"--weights={name}", "--iterations=1"], name

    def edit(self, numbers: random.Random) -> Case:
        """A net, or its weights, changed and edited."""
        operation = numbers.choice(
            (["--deploy"], ["--deploy", "--fold"], ["--cut=ip"], ["--classes=3"], ["--rename=ip=new"], ["--fold"],
             ["--train_val", "--source=x"], ["--deploy", "--no_dropout", "--classes=2"])
        )  # fmt: skip
        words = ["-o", "out.prototxt", *operation, *(["--no_check"] if numbers.random() < 0.3 else [])]
        if numbers.random() < 0.5:
            _, name = self.weights(numbers)
            return ["edit", "small.prototxt", name, *words], f"edit {name}"
        _, name = self.layer(numbers)
        return ["edit", "net.prototxt", *words], f"edit {name}"

    def _source_net(self, name: str) -> str:
        return (
            f'name: "{name}" layer {{ name: "data" top: "data" top: "label" {_SOURCES[name]} }}'
            ' layer { name: "s" type: "Reduction" bottom: "data" top: "sum" }'
            ' layer { name: "q" type: "Silence" bottom: "label" }'
        )

    # -- what runs and measurements left ---------------------------------------------------------------------

    def json_log(self, numbers: random.Random) -> Case:
        """A JSON log with values changed."""
        self._write("run.json", mutate_json_lines(self._text("run.json"), numbers))
        return numbers.choice((["report", "run.json"], ["log", "run.json", "--csv=out.csv"])), "JSON log"

    def timeline(self, numbers: random.Random) -> Case:
        """A timeline with values changed."""
        text = self._text("t.json")
        for _ in range(numbers.choice((1, 1, 3))):
            with_change = mutate_json(text, numbers)
            try:
                json.loads(with_change)
            except (ValueError, RecursionError):
                self._write("t.json", with_change)
                break
            text = with_change
            self._write("t.json", text)
        return ["report", "run.json", "--timeline=t.json"], "timeline"

    def predictions(self, numbers: random.Random) -> Case:
        """What `engine plan --json` writes, changed."""
        self._write("p.json", mutate_json(self._text("p.json"), numbers))
        return ["report", "run.json", "--plan=p.json"], "predictions"

    def text_log(self, numbers: random.Random) -> Case:
        """A log of Caffe's with words or bytes changed."""
        if numbers.random() < 0.5:
            self._write("run.log", mutate_table(_TEXT_LOG, numbers))
        else:
            (self._folder / "run.log").write_bytes(mutate_bytes(_TEXT_LOG.encode(), numbers))
        return ["log", "run.log", "--csv=out.csv"], "log"

    def plan_file(self, numbers: random.Random) -> Case:
        """A plan file with values changed."""
        self._write("plan.json", mutate_json(self._text("plan.json"), numbers))
        return ["plan_file", "plan.json"], "plan file"

    def costs(self, numbers: random.Random) -> Case:
        """Costs of an all-reduce with values changed."""
        document = numbers.choice((_COSTS, _CURVE, {"kind": "affine", "a": 1e-3, "b": 1e-9}))
        self._write("costs.json", mutate_json(json.dumps(document), numbers))
        return ["plan", "--trace=trace.csv", "--cost=costs.json", "--workers=4"], "costs"

    def costs_table(self, numbers: random.Random) -> Case:
        """The same as a table."""
        self._write("costs.csv", mutate_table(_COSTS_CSV, numbers))
        return ["simulate", "trace.csv", "--network=costs.csv", "--workers=4"], "table of costs"

    def trace(self, numbers: random.Random) -> Case:
        """A trace with cells changed."""
        self._write("trace.csv", mutate_table(_TRACE, numbers))
        network = "--network=ring:alpha=45e-6,beta=1e-9"
        command = numbers.choice((["simulate", "trace.csv"], ["plan", "--trace=trace.csv", "--export=out.json"]))
        return [*command, network, "--workers=4"], "trace"

    # -- the valid files -------------------------------------------------------------------------------------

    def _text(self, name: str) -> str:
        return (self._folder / name).read_text()

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))

    def _make_files(self) -> None:
        from mgcaffe.engine.data.criteo.dictionary import write_dictionary
        from mgcaffe.engine.net import Net
        from mgcaffe.engine.weights.hdf5 import save_hdf5
        from tests.tools.report.test_report import TRIALS, json_log, prediction, timeline

        for name, text in {
            "small.prototxt": _HEAD + _BODY,
            "run.json": json_log(8, trials=TRIALS),
            "t.json": timeline(),
            "p.json": json.dumps([prediction(2), prediction(2) | {"schedule": "single"}]),
            "trace.csv": _TRACE,
            "hdf5.txt": "rows.h5\n",
            "images.txt": "0.png 1\n1.png 0\n",
            "windows.txt": "# 0\n0.png\n3\n9\n9\n2\n1 0.9 0 0 5 5\n1 0.1 2 2 7 7\n"
            "# 1\n1.png\n3\n9\n9\n1\n1 0.8 0 0 8 8\n",
        }.items():
            self._write(name, text)
        for number, image in enumerate(images(2, (9, 9, 3))):
            (self._folder / f"{number}.png").write_bytes(file_bytes(image, "PNG"))
        numbered(self._folder / "records", 6)
        write(self._folder / "rows.tsv", rows(0, 8))
        (self._folder / "rows.gz").write_bytes(gzip.compress(b"\n".join(rows(8, 12)), mtime=0))
        write_dictionary(self._folder / "dictionary", [np.arange(1, 9, dtype=np.uint64)] * 26)
        blob = BlobProto()
        fill_blob(blob, np.ones((1, 3, 9, 9), np.float32))
        (self._folder / "mean.binaryproto").write_bytes(blob.SerializeToString())
        with h5py.File(self._folder / "rows.h5", "w") as file:
            file["data"] = np.ones((5, 3), np.float32)
            file["label"] = np.zeros(5, np.float32)
        net = Net(parse_text(_HEAD + _BODY, NetParameter))
        (self._folder / "small.caffemodel").write_bytes(net.to_proto().SerializeToString())
        save_hdf5(net, self._folder / "small.h5")
        self._make_plan()

    def _make_plan(self) -> None:
        from mgcaffe.comm.planning.cost import AffineCost
        from mgcaffe.comm.planning.plan import Segment
        from mgcaffe.comm.planning.plan_file import PlanBasis, plan_text
        from mgcaffe.comm.planning.schedules import make_plan

        segments = [Segment("conv1", 0, 20), Segment("ip", 20, 300)]
        cost = AffineCost(1e-3, 1e-9)
        plan = make_plan("wfbp", segments, [2e-3, 1e-3], cost, element_bytes=4, backward_end=3e-3)
        self._write("plan.json", plan_text(plan, PlanBasis(segments, [2e-3, 1e-3], cost)))
