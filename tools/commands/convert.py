"""`engine convert`: a model in another format, with the proof that it computes the same."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_OK, UsageError
from mgcaffe.tools.flags.parsing import (
    MAX_INT64,
    FlagParser,
    Flags,
    blob_shape,
    number_from,
    positive_float,
    words_list,
)
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

_TOLERANCE = 1e-4
_LOSSES = ("softmax", "sigmoid", "euclidean", "hinge")
_DATA_LAYERS = ("Data", "ImageData", "HDF5Data")
_TRAIN_BATCH = 32


def parser() -> FlagParser:
    """Return the flags of `engine convert`."""
    flags = FlagParser(
        "convert",
        "Convert a model, run both sides on the same inputs, and write it only if they compute the same. The formats "
        "follow\nfrom the files' names: NET.prototxt WEIGHTS.caffemodel (or .caffemodel.h5, .safetensors, .npz), "
        "FILE.onnx,\nFILE.py:FUNCTION (a module of PyTorch) and FILE.pt2 (of torch.export) are read; FILE.onnx, "
        "FILE.py (a module of\nPyTorch, with FILE.safetensors beside it), FILE.pt2, NET.prototxt (with its weights "
        "beside it) and\nWEIGHTS.caffemodel[.h5] (with its net beside it) are written. Weights without a net become "
        "weights of another kind;\nthose of a net are written alone as .safetensors or .npz. docs/converting.md says "
        "what becomes of each layer type,\ndocs/converting_onnx.md of each operator of ONNX, "
        "docs/converting_pytorch.md of PyTorch's. Needs onnx and onnxruntime\n"
        "for ONNX, safetensors for FILE.py and .safetensors: pip install "
        "'mgcaffe[onnx,safetensors]'.",
        files=("IN...", "OUT"),
        epilog="examples:\n"
        "  engine convert deploy.prototxt bvlc_alexnet.caffemodel alexnet.onnx\n"
        "  engine convert deploy.prototxt bvlc_alexnet.caffemodel alexnet.py   # a PyTorch module\n"
        "  engine convert old.prototxt old.caffemodel new.caffemodel.h5   # today's form, also new.prototxt\n"
        "  engine convert deploy.prototxt w.caffemodel net.onnx --input_shape data=1,3,227,227\n"
        "  engine convert net.onnx net.prototxt --input_shape input=1,3,224,224   # where the file leaves sizes open\n"
        "  engine convert bvlc_alexnet.caffemodel alexnet.safetensors     # also .npz and .h5, and back\n"
        "  engine convert nets.py:make_net net.prototxt --input_shape 1,3,224,224   # runs nets.py",
    )
    add_proof_flags(flags)
    flags.switch("no_check", "write the model without comparing the two sides")
    flags.flag(
        "allow", "write what cannot be expressed otherwise than the model says: names, separated by commas "
        "(docs/converting.md lists them)",
        type=words_list, default=[], metavar="NAMES",
    )  # fmt: skip
    flags.flag(
        "train_val", "also write OUT_train_val.prototxt, with data layers that read these sources (one for both "
        "phases, or one each; LMDBs unless --data_layer says otherwise) and a loss, and OUT_solver.prototxt, which "
        "goes on from the converted weights",
        type=words_list, default=[], metavar="TRAIN[,TEST]",
    )  # fmt: skip
    flags.flag("data_layer", "the data layers of --train_val (default: Data)", choices=_DATA_LAYERS)
    flags.flag("loss", f"the loss of --train_val (default: {_LOSSES[0]})", choices=_LOSSES)
    flags.flag(
        "batch_size", f"the batch size of --train_val (default: {_TRAIN_BATCH})", type=number_from(1), metavar="N"
    )
    return flags


def add_proof_flags(flags: FlagParser) -> None:
    """Add the flags of every command that compares two models."""
    flags.flag(
        "input_shape", "shape of an input, as data=1,3,227,227, where it is to be another than the model's; may be "
        "repeated. Without a name it holds for the first input",
        type=blob_shape, action="append", default=[], metavar="[BLOB=]N,C,H,W",
    )  # fmt: skip
    flags.flag(
        "tolerance", "the largest difference of two values, relative to the largest value of the blob, that is "
        f"accepted (default: {_TOLERANCE:g})",
        type=positive_float, metavar="X",
    )  # fmt: skip
    flags.flag(
        "seed", "seed of the inputs, and of fillers where no weights are given", default=0,
        type=number_from(0, MAX_INT64), metavar="N",
    )  # fmt: skip
    flags.flag("json", "write how far apart each blob is to this file", metavar="FILE")
    flags.switch("strict", "refuse unknown fields in prototxt files instead of warning")


def run(flags: Flags, session: Session) -> int:
    """Convert; print the proof, the worst blob first."""
    session.refuse_ranks("convert")
    if len(flags.files) < 2:
        raise UsageError(
            f"convert takes a model and the file to write, not {len(flags.files)} name(s)",
            hint="engine convert NET.prototxt WEIGHTS.caffemodel OUT.onnx",
        )
    if flags.no_check and flags.json:
        raise UsageError("--no_check and --json exclude each other: without the comparison there is nothing to write")
    *source, target = flags.files
    for name in ("data_layer", "loss", "batch_size"):
        if getattr(flags, name) and not flags.train_val:
            raise UsageError(f"--{name} goes with --train_val")
    if len(flags.train_val) > 2:
        raise UsageError(f"--train_val takes one or two sources, not {len(flags.train_val)}")
    with loading():
        from mgcaffe.tools.convert.conversion import convert
    from mgcaffe.tools.convert.format_tables import names_weights, writer_of
    from mgcaffe.tools.convert.proof import write_json
    from mgcaffe.tools.convert.training_step import TOLERANCE as STEP_TOLERANCE

    kind = writer_of(Path(target).name, weights_alone=len(source) == 1 and names_weights(source[0])).name
    if flags.train_val and kind != "Caffe":
        raise UsageError(f"--train_val goes with nets of Caffe's, not with {kind}")
    result = convert(
        source,
        target,
        input_shape=dict(flags.input_shape),
        tolerance=flags.tolerance or _TOLERANCE,
        check=not flags.no_check,
        seed=flags.seed,
        allow=flags.allow,
        strict=flags.strict,
    )
    print(result)
    if flags.json:
        write_json(result.document(), Path(flags.json))
    if result.holds:
        if flags.train_val:
            _write_training_files(flags, *result.files)
        return EXIT_OK
    if result.values_hold:
        said = f"one training step of the two sides differs by more than {STEP_TOLERANCE:g}"
    else:
        said = f"the two sides differ by more than {result.tolerance:g}"
    print(f"{said}: {target} was not written; what was built is {', '.join(map(str, result.files))}")
    return EXIT_BAD_INPUT


def _write_training_files(flags: Flags, net_path: Path, weights_path: Path) -> None:
    """Write the train_val net and the solver beside the deploy net."""
    from mgcaffe.prototxt import read_net, write_text
    from mgcaffe.tools.convert.starting_solver import starting_solver
    from mgcaffe.tools.surgery.training_form import DataChoice, to_training

    kind = flags.data_layer or _DATA_LAYERS[0]
    data = DataChoice(kind, (flags.train_val[0], flags.train_val[-1]), flags.batch_size or _TRAIN_BATCH)
    edit = to_training(read_net(net_path), data, flags.loss or _LOSSES[0])
    train_val, solver = (net_path.with_name(f"{net_path.stem}_{what}.prototxt") for what in ("train_val", "solver"))
    write_text(edit.net, train_val)
    write_text(starting_solver(str(train_val), str(weights_path), str(net_path.with_suffix(""))), solver)
    print("\n".join([*edit.notes, f"wrote {train_val}", f"wrote {solver}"]))
