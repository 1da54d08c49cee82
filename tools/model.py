"""Builds the net that a subcommand without a solver is about, also where its data is not at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgcaffe.engine.data.images.transform_fields import transformed_shape
from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError, NetError, UsageError
from mgcaffe.prototxt import LayerParameter, NetParameter, read_net_source
from mgcaffe.prototxt.source import NetSource
from mgcaffe.tools.flags.parsing import Flags

Shapes = list[tuple[str, tuple[int, ...]]]

# The field that says how many records a batch of a data layer holds.
_BATCH_FIELDS = {
    "Data": "data_param",
    "HDF5Data": "hdf5_data_param",
    "ImageData": "image_data_param",
    "MemoryData": "memory_data_param",
    "WindowData": "window_data_param",
}
_FIELDS_OF_READERS = ("data_param", "transform_param")  # of every type that reads images
_PHASES = {"TRAIN": TRAIN, "TEST": TEST}


def build_net(flags: Flags, model: str, phase: str, *, noise: bool = False, **options: Any) -> Net:
    """Return the net of a prototxt, in the state that the flags ask for, ready to run.

    Args:
        flags: level, stage, strict and, where the subcommand has it, input_shape.
        model: the prototxt's path.
        phase: TRAIN or TEST.
        noise: data layers named by input_shape give noise of that shape, so that the net runs without data.
        options: passed on to Net.
    """
    source = read_net_source(Path(model), strict=flags.strict)
    if noise:
        feed_noise(source.param, apply_input_shapes(source.param, flags.input_shape))
    return _net(flags, source, phase, **options)


def build_outline(flags: Flags, model: str | NetSource, phase: str, *, keep_blobs: bool = True) -> Net:
    """Return a net to be looked at: where a source is absent, its shape comes from input_shape.

    Args:
        flags: as for `build_net`.
        model: the prototxt's path, or what was read of it; its Input layers and batch sizes then become the flags'.
        phase: TRAIN or TEST.
        keep_blobs: as for `Net`; False: as it trains.

    Raises:
        DataError: a source is absent, and its shape was not given; the hint names the flag.
    """
    source = read_net_source(Path(model), strict=flags.strict) if isinstance(model, str) else model
    records = apply_input_shapes(source.param, flags.input_shape)
    if records:
        return _net(flags, source, phase, input_shapes=records, outline=True, keep_blobs=keep_blobs)
    try:
        return _net(flags, source, phase, outline=True, keep_blobs=keep_blobs)
    except DataError as absent:
        try:
            return _net(flags, source, phase, input_shapes={}, outline=True, keep_blobs=keep_blobs)
        except NetError as unknown:
            raise DataError(absent.message, location=absent.location, hint=unknown.hint) from None


def _net(flags: Flags, source: NetSource, phase: str, **options: Any) -> Net:
    return Net(
        source.param,
        sources=source,
        phase=_PHASES[phase],
        level=flags.level,
        stages=flags.stage,
        **options,
    )


def apply_input_shapes(param: NetParameter, shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Put `--input_shape` into the net's message where it can be said there: batch sizes and Input layers.

    Args:
        param: the NetParameter; changed in place.
        shapes: (blob or layer, shape) pairs; the name '' means every data source and Input layer.

    Returns:
        The shapes of single records, by the name of the data layer, or of a blob of HDF5Data that is not its first, for
        Net's `input_shapes`.

    Raises:
        UsageError: a name that no source of the net has, or of a blob whose shape follows from the first's.
    """
    records: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes:
        named = [layer for layer in param.layer if _is_meant(layer, name)]
        if not named:
            known = dict.fromkeys(top for layer in param.layer if _is_source(layer) for top in layer.top)
            if not known:
                raise UsageError("--input_shape: the net has no input and no data layer that could be given a shape")
            raise UsageError(
                f"--input_shape {name}: the net has no such input", hint=f"its inputs are {', '.join(known)}"
            )
        for layer in named:
            if layer.type == "Input":
                _set_input(layer, name, shape)
            elif name in layer.top[1:] and name != layer.name:
                records[name] = _of_further_blob(layer, name, shape)
            elif len(shape) == 4:
                getattr(layer, _BATCH_FIELDS[layer.type]).batch_size = shape[0]
                records[layer.name] = shape[1:]
            else:
                records[layer.name] = shape
    return records


def _of_further_blob(layer: LayerParameter, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a record in a blob that is not its layer's first; only HDF5Data has them of any shape."""
    if layer.type != "HDF5Data":
        raise UsageError(
            f"--input_shape {name}: its shape follows from that of '{layer.top[0]}', the first blob of layer "
            f"'{layer.name}' ({layer.type})",
            hint=f"--input_shape {layer.top[0]}=...",
        )
    return shape[1:] if len(shape) == 4 else shape


def _is_source(layer: LayerParameter) -> bool:
    return layer.type == "Input" or layer.type in _BATCH_FIELDS


def _is_meant(layer: LayerParameter, name: str) -> bool:
    return _is_source(layer) and (not name or name in (layer.name, *layer.top))


def _set_input(layer: LayerParameter, name: str, shape: tuple[int, ...]) -> None:
    """Give one blob of an Input layer (or, by the layer's name or none, its first) a shape."""
    number = list(layer.top).index(name) if name in layer.top else 0
    shapes = layer.input_param.shape
    while len(shapes) < len(layer.top):
        shapes.add().CopyFrom(shapes[0])
    del shapes[number].dim[:]
    shapes[number].dim.extend(shape)


def feed_noise(param: NetParameter, records: dict[str, tuple[int, ...]]) -> None:
    """Make DummyData of the data layers whose records have been given a shape.

    The first top holds noise of the shape that the layer would give it, the others (labels) zeros: one a record, or of
    the shape that they have been given.
    """
    for layer in param.layer:
        if layer.name not in records or layer.type == "Input":
            continue
        reader = getattr(layer, _BATCH_FIELDS[layer.type])
        shape = records[layer.name]
        if len(shape) == 3:
            shape = transformed_shape(layer.transform_param, shape)
            crop = getattr(reader, "crop_size", 0)
            shape = (shape[0], crop, crop) if crop else shape
        batch = reader.batch_size
        for field in (_BATCH_FIELDS[layer.type], *_FIELDS_OF_READERS):  # DummyData would be said not to read them
            layer.ClearField(field)
        layer.type = "DummyData"
        for number in range(len(layer.top)):
            dummy = layer.dummy_data_param
            dummy.shape.add(dim=(batch, *(shape if number == 0 else records.get(layer.top[number], ()))))
            dummy.data_filler.add(type="gaussian" if number == 0 else "constant", std=1.0)
