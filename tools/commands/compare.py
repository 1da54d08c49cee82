"""`engine compare`: whether two models, whatever their formats, compute the same."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.errors import EXIT_BAD_INPUT, EXIT_OK, UsageError
from mgcaffe.tools.commands.convert import add_proof_flags
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session


def parser() -> FlagParser:
    """Return the flags of `engine compare`."""
    flags = FlagParser(
        "compare",
        "Run two models on the same seeded inputs and show how far apart each blob is, the worst first. A model is "
        "NET.prototxt\nWEIGHTS.caffemodel (or .caffemodel.h5, .safetensors, .npz; weights belong to the net before "
        "them), FILE.onnx,\nFILE.py:FUNCTION (a module of PyTorch) or FILE.pt2 (of torch.export). Values are compared "
        "by name, outputs\nwithout a common name in their order. Of two files of weights without a net the arrays are "
        "compared.",
        files=("A", "B"),
        epilog="examples:\n"
        "  engine compare deploy.prototxt w.caffemodel net.onnx\n"
        "  engine compare old.prototxt old.caffemodel new.prototxt new.caffemodel.h5",
    )
    add_proof_flags(flags)
    return flags


def run(flags: Flags, session: Session) -> int:
    """Compare; print the table."""
    session.refuse_ranks("compare")
    with loading():
        from mgcaffe.tools.convert.comparison import compare_models
    from mgcaffe.tools.convert.format_tables import split_models
    from mgcaffe.tools.convert.proof import TOLERANCE, document, write_json

    models = split_models(flags.files)
    if len(models) != 2:
        raise UsageError(
            f"compare takes two models, not {len(models)}",
            hint="a model is NET.prototxt WEIGHTS.caffemodel, FILE.onnx, FILE.py:FUNCTION or FILE.pt2",
        )
    result = compare_models(
        *models,
        input_shapes=flags.input_shape,
        tolerance=flags.tolerance or TOLERANCE,
        seed=flags.seed,
        strict=flags.strict,
    )
    print(result)
    if flags.json:
        write_json(document(result.differences), Path(flags.json))
    if not result.holds:
        print(f"the two models differ by more than {result.tolerance:g}")
    return EXIT_OK if result.holds else EXIT_BAD_INPUT
