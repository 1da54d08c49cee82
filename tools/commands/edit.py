"""`engine edit`: changes nets and their weights, and shows that what should stay the same does.

The operations are in tools/surgery; here they are put in order, proved, and written.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import EXIT_OK, DataError, NetError, UsageError
from mgcaffe.errors.file_names import shown_name
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.net_flags import add_shape_flag, add_state_flags
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from, positive_float, words_list
from mgcaffe.tools.running.loading import loading
from mgcaffe.tools.running.session import Session

if TYPE_CHECKING:
    from mgcaffe.prototxt import NetParameter, NetSource
    from mgcaffe.tools.convert.proof import Difference
    from mgcaffe.tools.surgery.edit import Edit
    from mgcaffe.tools.surgery.wiring import State

_LOSSES = ("softmax", "sigmoid", "euclidean", "hinge")
_DATA_LAYERS = ("Data", "ImageData", "HDF5Data")
_TRAIN_BATCH = 64
_TOLERANCE = 1e-4


def parser() -> FlagParser:
    """Return the flags of `engine edit`."""
    flags = FlagParser(
        "edit",
        "Change a net and its weights: writes OUT.prototxt and, where weights are given, OUT.caffemodel beside it.\n"
        "Operations are done in the order in which they are listed here; names are those of NET. Both nets then run\n"
        "on the same inputs; if values differ that should not, the files get other names and the exit code is 65.\n"
        "Comments of NET are not kept.",
        files=("NET", "[WEIGHTS ...]", "-o OUT.prototxt"),
        epilog=(
            "examples:\n"
            "  engine edit train_val.prototxt net.caffemodel -o deploy.prototxt --deploy --fold\n"
            "  engine edit deploy.prototxt net.caffemodel -o tune.prototxt --classes 20 --train_val --source a,b\n"
            "  engine edit deploy.prototxt net.caffemodel -o features.prototxt --cut fc7\n"
            "  engine edit net.prototxt a.caffemodel b.caffemodel -o both.prototxt      # merges the weights"
        ),
    )
    flags.flag("output", "the net to write; its weights go beside it, as .caffemodel", short="o", metavar="FILE")
    flags.switch("deploy", "make a deploy net: inputs in place of data, Softmax or Sigmoid in place of losses")
    flags.flag("outputs", "blobs that the deploy net ends with (default: what the losses that count most are taken of)",
               type=words_list, default=[], metavar="BLOBS")  # fmt: skip
    flags.switch("no_dropout", "remove Dropout layers from the deploy net")
    flags.flag("cut", "remove what comes after this layer, and what only that needs", metavar="LAYER")
    flags.switch("fold", "fold BatchNorm, Scale and Bias into the convolution or inner product before them")
    flags.flag("classes", "give the layer that scores the classes so many outputs, a new name and no weights",
               type=number_from(1), metavar="N")  # fmt: skip
    flags.flag("class_layers", "the layers that score the classes (default: found from the losses or outputs)",
               type=words_list, default=[], metavar="LAYERS")  # fmt: skip
    flags.flag("rename", "give a layer another name; may be repeated", type=_renaming, action="append", default=[],
               metavar="OLD=NEW")  # fmt: skip
    flags.switch("train_val", "make a net that trains of a deploy net")
    flags.flag("data_layer", "the data layers of --train_val", choices=_DATA_LAYERS, default="Data")
    flags.flag("source", "their sources, for training and testing (or one for both)", type=words_list, default=[],
               metavar="TRAIN,TEST")  # fmt: skip
    flags.flag("loss", "the loss of --train_val (default: that of the output's Softmax or Sigmoid)", choices=_LOSSES)
    flags.flag("batch_size", f"batch of --deploy's inputs (default: 1) or of --train_val (default: {_TRAIN_BATCH})",
               type=number_from(1), metavar="N")  # fmt: skip
    add_shape_flag(flags)
    add_state_flags(flags)
    flags.flag("tolerance", "the largest difference allowed, relative to a blob's largest value",
               type=positive_float, default=_TOLERANCE, metavar="X")  # fmt: skip
    flags.switch("no_check", "do not run the nets; the output says so")
    flags.flag("json", "write the differences to FILE", metavar="FILE")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Edit, prove, write."""
    session.refuse_ranks("edit")
    output = _check(flags)
    with loading():
        from mgcaffe.prototxt import read_net_source
        from mgcaffe.tools.model import apply_input_shapes
        from mgcaffe.tools.surgery.weights import attach, read_all
        from mgcaffe.tools.surgery.wiring import State

    path, *weights = flags.files
    source = read_net_source(Path(path), strict=flags.strict)
    if any(layer.blobs for layer in source.param.layer):
        raise NetError(f"{path} holds weights", hint="give the net's prototxt first, then the file of weights")
    state = State(flags.level, tuple(flags.stage))
    _check_blobs(source, state)
    if flags.no_check and not flags.deploy:
        shapes = {}
        apply_input_shapes(source.param, flags.input_shape)
    else:
        shapes = _source_shapes(flags, source)
        if flags.deploy and flags.batch_size and not shapes:
            print("warning: --batch_size has no effect: the net has no data layer", file=sys.stderr)
    loaded = attach(source.param, read_all(weights), state)
    edited = _edit(loaded, flags, shapes, state)
    for note in edited.notes:
        print(note)
    found = None
    if not flags.no_check:
        found = _prove(loaded.net, source, edited, flags, shapes, state)
    return _finish(edited.net, found, output, flags)


def _check(flags: Flags) -> Path:
    """Refuse flags that do not go together; return the file to write."""
    if not flags.files:
        raise UsageError("the net is missing", hint="engine edit NET [WEIGHTS ...] -o OUT.prototxt [flags]")
    if not flags.output:
        raise UsageError("the name of the output is missing", hint="-o OUT.prototxt")
    output = Path(flags.output)
    if output.suffix != ".prototxt":
        raise UsageError(f"-o {output}: the name has to end in .prototxt; weights go beside it, as .caffemodel")
    if flags.deploy and flags.train_val:
        raise UsageError("--deploy and --train_val exclude each other")
    for flag, needed in (("outputs", "deploy"), ("no_dropout", "deploy"), ("class_layers", "classes"),
                         ("source", "train_val"), ("loss", "train_val")):  # fmt: skip
        if getattr(flags, flag) and not getattr(flags, needed):
            raise UsageError(f"--{flag} goes with --{needed}")
    if flags.train_val and len(flags.source) not in (1, 2):
        many = f", not {len(flags.source)}" if flags.source else ""
        raise UsageError(f"--train_val needs one or two data sources{many}", hint="--source TRAIN,TEST")
    if flags.batch_size and not (flags.deploy or flags.train_val):
        raise UsageError("--batch_size goes with --deploy or --train_val")
    old = [name for name, _ in flags.rename]
    if twice := [name for name in dict.fromkeys(old) if old.count(name) > 1]:
        raise UsageError(f"--rename gives '{twice[0]}' {old.count(twice[0])} names")
    if flags.no_check and flags.json:
        raise UsageError("--no_check and --json exclude each other: nothing is compared")
    written = [output.resolve(), output.with_suffix(".caffemodel").resolve()]
    for path in flags.files:
        if Path(path).resolve() in written:
            raise UsageError(f"-o {output} would write over {path}", hint="choose another name")
    if not any((flags.deploy, flags.cut, flags.fold, flags.classes, flags.rename, flags.train_val, flags.files[2:])):
        raise UsageError("there is nothing to do", hint="see 'engine edit --help' for the operations")
    return output


def _check_blobs(source: NetSource, state: State) -> None:
    """Refuse a net in which a layer of either phase reads a blob that no earlier layer makes.

    Raises:
        NetError: with the place in the file.
    """
    from mgcaffe.engine.graph import rules
    from mgcaffe.prototxt import Phase

    base = source.param.state if source.param.HasField("state") else None
    specs = [rules.LayerSpec(layer, place) for layer, place in zip(source.param.layer, source.layers, strict=True)]
    for phase in (Phase.TRAIN, Phase.TEST):
        rules.layers_that_run(specs, rules.make_state(phase, state.level, state.stages, base))


def _source_shapes(flags: Flags, source: NetSource) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the data layers' tops, for one batch of the size asked for; checks the whole net.

    Input layers get the shapes of the flags.

    Raises:
        DataError: a source is not at hand and its shape was not given.
    """
    from mgcaffe.tools.model import build_outline
    from mgcaffe.tools.surgery.wiring import is_source

    net = build_outline(flags, source, "TEST")
    try:
        shapes: dict[str, tuple[int, ...]] = {}
        for node in net.nodes:
            if is_source(node.layer.param):
                tops = {blob.name: tuple(blob.shape) for blob in node.tops}
                if len({shape[:1] for shape in tops.values()}) == 1 and all(tops.values()):
                    tops = {name: (flags.batch_size or 1, *shape[1:]) for name, shape in tops.items()}
                shapes.update(tops)
        return shapes
    finally:
        net.close()


def _edit(edit: Edit, flags: Flags, shapes: dict[str, tuple[int, ...]], state: State) -> Edit:
    """Do the operations that the flags ask for, in order."""
    from mgcaffe.tools.surgery.classes import change_classes
    from mgcaffe.tools.surgery.deploy_form import to_deploy
    from mgcaffe.tools.surgery.ends import cut_after
    from mgcaffe.tools.surgery.folding import fold
    from mgcaffe.tools.surgery.names import rename
    from mgcaffe.tools.surgery.training_form import DataChoice, to_training

    if flags.deploy:
        edit = edit.then(
            partial(to_deploy, shapes=shapes, state=state, outputs=flags.outputs, keep_dropout=not flags.no_dropout)
        )
    if flags.cut:
        edit = edit.then(partial(cut_after, name=flags.cut, state=state))
    if flags.fold:
        edit = edit.then(fold)
    classes: dict[str, str] = {}
    if flags.classes:
        before = {layer.name for layer in edit.net.layer}
        edit = edit.then(partial(change_classes, classes=flags.classes, layers=flags.class_layers, state=state))
        added = {layer.name for layer in edit.net.layer} - before
        classes = {name.removesuffix(f"_{flags.classes}"): name for name in added}
    if flags.rename:
        edit = edit.then(partial(rename, names={classes.get(old, old): new for old, new in flags.rename}))
    if flags.train_val:
        data = DataChoice(flags.data_layer, (flags.source[0], flags.source[-1]), flags.batch_size or _TRAIN_BATCH)
        edit = edit.then(partial(to_training, data=data, loss=flags.loss))
    return edit


def _prove(
    net: NetParameter, source: NetSource, edited: Edit, flags: Flags, shapes: dict[str, tuple[int, ...]], state: State
) -> list[Difference]:
    """Run both nets; layers without weights are given the same random ones in both."""
    from mgcaffe.tools.surgery.edit import Edit
    from mgcaffe.tools.surgery.proving import build, differences, lacking_weights, with_seeded_weights

    first = build(net, shapes, state, " and ".join(flags.files[1:]) or flags.files[0], source)
    try:
        if lacking := lacking_weights(net, first):
            edited = _edit(Edit.begin(with_seeded_weights(net, first)), flags, shapes, state)
            if flags.files[1:]:
                print(f"no weights are given for {', '.join(lacking)}")
        fed = {**{name: tuple(first.blobs[name].shape) for name in first.inputs}, **shapes}
        found, not_finite = differences(first, edited, fed, state)
        if not_finite:
            print(f"values that are not finite, which proves little: {', '.join(not_finite)}")
        return found
    finally:
        first.close()


def _finish(net: NetParameter, found: list[Difference] | None, output: Path, flags: Flags) -> int:
    """Print the proof and write the files, under other names where it does not hold."""
    from mgcaffe.tools.convert.proof import document, table, unproven, write_json

    if found is None:
        _write(net, output, flags, "not compared with it (--no_check)")
        print("not compared: --no_check")
        return EXIT_OK
    print(table(found))
    if flags.json:
        write_json(document(found), Path(flags.json))
    worst = found[0]
    if worst.largest_relative <= flags.tolerance:
        count = f"{len(found)} blob{'s' * (len(found) != 1)}"
        said = f"{count} compared, largest relative difference {worst.largest_relative:.1e}"
        print(said)
        _write(net, output, flags, said)
        return EXIT_OK
    aside = unproven(output)
    _write(net, aside, flags, f"DIFFERS from it: blob {worst.name!r} by {worst.largest_relative:.1e}")
    raise DataError(
        f"blob '{worst.name}' differs by {worst.largest_relative:.1e} relative to its largest value, more than "
        f"{flags.tolerance:g}",
        hint=f"{output} is not written; the net is kept as {aside}",
    )


def _write(net: NetParameter, output: Path, flags: Flags, said: str) -> None:
    """Write the net and, where there are any, its weights, each whole or not at all."""
    from mgcaffe.prototxt import print_text, write_binary
    from mgcaffe.tools.surgery.edit import weights_of, without_weights

    inputs = " ".join(shown_name(Path(name).name) for name in flags.files)
    head = f"# Made by 'engine edit' from {inputs}; {said}.\n"
    written = [output]
    if any(layer.blobs for layer in net.layer):
        written.insert(0, output.with_suffix(".caffemodel"))
        write_binary(weights_of(net), written[0])
    write_output(output, head + print_text(without_weights(net)))
    for path in written:
        print(f"wrote {path}")


def _renaming(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new):
        raise argparse.ArgumentTypeError(f"'{text}' is not OLD=NEW")
    return old, new
