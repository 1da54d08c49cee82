"""Brings nets and solvers that are written in an old way into the form of today's Caffe (upgrade_proto.cpp).

    layers { layer { ... } }            -> layers { ... }                    (see upgrade_v0)
    layers { ... }                      -> layer { ... }                     (see upgrade_v1)
    data_param { scale crop_size ... }  -> transform_param { ... }       (in nets with `layers`)
    input, input_shape, input_dim       -> a layer of type Input, named "input", at the front
    BatchNorm with three param messages -> their lr_mult and decay_mult set to 0, since they aren't learned
    solver_type: ADAM                   -> type: "Adam"

Places move along, so that an error in an upgraded net still points into the user's file.
"""

from __future__ import annotations

from mgcaffe.prototxt.messages import LayerParameter, SolverParameter, has_field
from mgcaffe.prototxt.problems import logger
from mgcaffe.prototxt.source import LayerSource, NetSource, Place, SolverSource
from mgcaffe.prototxt.upgrade_v0 import is_v0, upgrade_v0
from mgcaffe.prototxt.upgrade_v1 import upgrade_v1

_TRANSFORM_HOLDERS = {
    "Data": "data_param",
    "ImageData": "image_data_param",
    "WindowData": "window_data_param",
}
_TRANSFORM_FIELDS = ("scale", "mean_file", "crop_size", "mirror")
_SOLVER_TYPES = {
    "SGD": "SGD",
    "NESTEROV": "Nesterov",
    "ADAGRAD": "AdaGrad",
    "RMSPROP": "RMSProp",
    "ADADELTA": "AdaDelta",
    "ADAM": "Adam",
    "SAG": "SAG",
}


def upgrade_net(net: NetSource) -> None:
    """Upgrade a net in place, in Caffe's order, and note in `upgrades` what was done.

    Upgrading twice is the same as once.

    Raises:
        PrototxtError: the net mixes old and new layers, one of the oldest form has no counterpart today, or
            its inputs do not add up.
    """
    was_old = bool(net.param.layers)
    if was_old:
        _upgrade_layers(net)
    moved = [
        _upgrade_transform(layer, source, was_old=was_old)
        for layer, source in zip(net.param.layer, net.layers, strict=True)
    ]
    if any(moved):
        net.upgrades.append(f"transformation fields of {sum(moved)} data layers, now in transform_param")
    _upgrade_inputs(net)
    _upgrade_batch_norm(net)


def _upgrade_layers(net: NetSource) -> None:
    if net.param.layer:
        message = "the net mixes 'layer' with the older 'layers', whose order is then unknown"
        raise net.error(message, "layers", hint="Write all of them as 'layer'.")
    if is_v0(net):
        upgrade_v0(net)
    else:
        net.upgrades.append(f"{len(net.layers)} layers in the form before 2015 (V1)")
    upgrade_v1(net)


def upgrade_solver(solver: SolverSource) -> None:
    """Upgrade a solver in place, and the nets that are written inside it.

    Raises:
        PrototxtError: the solver has both `type` and `solver_type`, or one of its nets cannot be upgraded.
    """
    param = solver.param
    if param.HasField("solver_type"):
        if param.HasField("type"):
            raise solver.error("'solver_type' is the old form of 'type': a solver has only one of them", "solver_type")
        param.type = _SOLVER_TYPES[SolverParameter.SolverType.Name(param.solver_type)]
        param.ClearField("solver_type")
        solver.place.fields["type"] = solver.place.fields.pop("solver_type", [])
        solver.upgrades.append(f'solver_type, now type: "{param.type}"')
    for (name, index), net in solver.inline_nets.items():
        upgrade_net(net)
        which = f"{name} {index}" if len(param.test_net_param) > 1 and name == "test_net_param" else name
        solver.upgrades.extend(f"{which}: {done}" for done in net.upgrades)


def _upgrade_transform(layer: LayerParameter, source: LayerSource, was_old: bool) -> bool:
    """Move scale, mean_file, crop_size and mirror from a data layer's own parameters to transform_param.

    Return whether one was moved.

    Caffe does so in `layers`, where the old field replaces one in transform_param. In `layer` it reads none of the old
    ones, but for WindowData's scale; the others are removed with a warning.
    """
    holder_name = _TRANSFORM_HOLDERS.get(layer.type)
    if holder_name is None:
        return False
    holder = getattr(layer, holder_name)
    moved = False
    for name in _TRANSFORM_FIELDS:
        if not has_field(holder, name):
            continue
        if was_old or (layer.type, name) == ("WindowData", "scale"):
            setattr(layer.transform_param, name, getattr(holder, name))
            _move_transform_place(source.place, holder_name, name)
            moved = True
        else:
            location = source.field(f"{holder_name}.{name}")
            logger.warning(
                "%s: %s.%s has no effect in a 'layer', as in Caffe; what transform_param has counts",
                location,
                holder_name,
                name,
            )
        holder.ClearField(name)
    return moved


def _move_transform_place(place: Place, holder_name: str, name: str) -> None:
    holders = place.fields.get(holder_name)
    if not holders or name not in holders[0].fields:
        return
    transforms = place.fields.setdefault("transform_param", [Place(holders[0].offset)])
    transforms[0].fields[name] = holders[0].fields.pop(name)


def _upgrade_inputs(net: NetSource) -> None:
    """Turn the net's `input` fields into one Input layer.

    Inputs without any shape, which old caffemodels have, are dropped, as in Caffe.
    """
    param = net.param
    count = len(param.input)
    if count and param.input_shape and param.input_dim:
        logger.warning("%s: input_dim has no effect beside input_shape", net.field("input_dim"))
    if not count and (param.input_shape or param.input_dim):
        which = "input_shape" if param.input_shape else "input_dim"
        logger.warning("%s: %s without any 'input' has no effect", net.field(which), which)
    if count and (param.input_shape or param.input_dim):
        shapes = _input_shapes(net)
        layer = LayerParameter(name="input", type="Input", top=param.input)
        for shape in shapes:
            layer.input_param.shape.add(dim=shape)
        param.layer.insert(0, layer)
        net.layers.insert(0, _input_source(net))
        net.upgrades.append(f"{count} input fields, now a layer of type Input")
    elif count:
        net.upgrades.append("input fields without a shape, now gone")
    for name in ("input", "input_shape", "input_dim"):
        param.ClearField(name)


def _input_shapes(net: NetSource) -> list[list[int]]:
    param = net.param
    count = len(param.input)
    if param.input_shape:
        if len(param.input_shape) < count:
            message = f"{count} 'input' need as many 'input_shape', not {len(param.input_shape)}"
            raise net.error(message, "input_shape")
        _warn_of_surplus(net, "input_shape", count)
        return [list(shape.dim) for shape in param.input_shape[:count]]
    dims = list(param.input_dim)
    if len(dims) < 4 * count:
        raise net.error(f"{count} 'input' need {4 * count} 'input_dim' (4 each), not {len(dims)}", "input_dim")
    _warn_of_surplus(net, "input_dim", 4 * count)
    return [dims[start : start + 4] for start in range(0, 4 * count, 4)]


def _warn_of_surplus(net: NetSource, name: str, needed: int) -> None:
    surplus = len(getattr(net.param, name)) - needed
    if surplus:
        reason = f"{len(net.param.input)} 'input' need {needed}"
        what = f"the last {name} has" if surplus == 1 else f"the last {surplus} {name} have"
        logger.warning("%s: %s no effect: %s", net.field(name, needed), what, reason)


def _input_source(net: NetSource) -> LayerSource:
    fields = net.place.fields
    tops = fields.get("input", [])
    shapes = (fields.get("input_shape") or fields.get("input_dim", [])[::4])[: len(tops)]
    place = Place(tops[0].offset if tops else net.place.offset, {"top": tops})
    if shapes:
        place.fields["input_param"] = [Place(shapes[0].offset, {"shape": shapes})]
    return LayerSource(net.text, place)


def _upgrade_batch_norm(net: NetSource) -> None:
    """Set the multipliers of the statistics to 0: nets from before 2017 said so themselves, or forgot to."""
    changed = 0
    for layer in net.param.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            changed += any(spec.lr_mult or spec.decay_mult for spec in layer.param)
            for spec in layer.param:
                spec.lr_mult = spec.decay_mult = 0
    if changed:
        net.upgrades.append(f"param messages of {changed} BatchNorm layers, now with lr_mult and decay_mult 0")
