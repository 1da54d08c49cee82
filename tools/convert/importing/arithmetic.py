"""Operators of two values, with broadcasting: blobs, parameters or numbers in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mgcaffe.tools.convert.importing.activations import clipped
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import expanded, reshaped, tiled
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value

Number = (int, float)


def sum_of(op: Operation, one: Any, two: Any, alpha: float = 1) -> Value:
    """Return one + alpha two: Eltwise SUM, Bias, or Power with a number."""
    if isinstance(two, Number):
        return op.layer("Power", [op.as_blob(one)], power_param={"shift": alpha * two})
    if isinstance(one, Number):
        param = {"scale": alpha, **({"shift": one} if one else {})}
        return op.layer("Power", [op.as_blob(two)], power_param=param)
    if isinstance(one, Constant) and alpha == 1:
        one, two = two, one
    if isinstance(one, Constant) and isinstance(two, Value):
        two = op.as_blob(two)
        y = op.layer("Power", [two], two.shape, part="factor", power_param={"scale": alpha})
        return with_constant(op, "Bias", y, one)
    if isinstance(two, Constant) and not (two.trained and alpha != 1):
        return with_constant(op, "Bias", op.as_blob(one), two if alpha == 1 else Constant(two.tensor * alpha))
    one, two = op.as_blob(one), op.as_blob(two)
    if one.shape == two.shape and _are_alike(op, one, two):
        coefficients = {"coeff": [1, alpha]} if alpha != 1 else {}
        return op.layer("Eltwise", [one, two], eltwise_param=coefficients)
    if alpha != 1:
        two = op.layer("Power", [two], two.shape, part="factor", power_param={"scale": alpha})
    return _broadcast(op, "Bias", one, two)


def product_of(op: Operation, one: Any, two: Any) -> Value:
    """Return one times two: Eltwise PROD, Scale, or Power with a number."""
    if isinstance(one, Number) or (isinstance(one, Constant) and not isinstance(two, Number)):
        one, two = two, one
    if isinstance(two, Number):
        return op.layer("Power", [op.as_blob(one)], power_param={"scale": two})
    if isinstance(two, Constant):
        return with_constant(op, "Scale", op.as_blob(one), two)
    one, two = op.as_blob(one), op.as_blob(two)
    if one.shape == two.shape and _are_alike(op, one, two):
        return op.layer("Eltwise", [one, two], eltwise_param={"operation": "PROD"})
    return _broadcast(op, "Scale", one, two)


def quotient_of(op: Operation, one: Any, two: Any) -> Value:
    """Return one over two: Power or Scale with the reciprocal, Eltwise PROD with the power -1."""
    if isinstance(two, Number):
        two = torch.tensor(two, dtype=torch.float32).item()  # a graph of float32 divides by such a number
        if two == 0:
            op.refuse("it divides by zero")
        factor = 1 / two
        op.multiply_by(factor)
        return op.layer("Power", [op.as_blob(one)], power_param={"scale": factor})
    if isinstance(two, Constant) and not two.trained:
        factors = two.tensor.float().double().reciprocal()
        op.multiply_by(factors)
        return with_constant(op, "Scale", op.as_blob(one), Constant(factors))
    if not isinstance(one, Value):
        two = op.as_blob(two)
        y = op.layer("Power", [two], two.shape, part="reciprocal", power_param={"power": -1})
        return product_of(op, y, one)
    one, two = op.as_blob(one), op.as_blob(two)
    reciprocal = op.layer("Power", [two], two.shape, part="reciprocal", power_param={"power": -1})
    if one.shape == two.shape and _are_alike(op, one, two):
        return op.layer("Eltwise", [one, reciprocal], eltwise_param={"operation": "PROD"})
    return _broadcast(op, "Scale", one, reciprocal)


def extreme_of(op: Operation, operands: Sequence[Any], *, smallest: bool) -> Value:
    """Return the largest of each values, or the smallest: Eltwise MAX (of negated values, negated), Clip with a number.

    Args:
        op: the operator.
        operands: blobs of one shape, and numbers.
        smallest: which of the two.
    """
    if any(isinstance(each, Constant) for each in operands):
        op.refuse("it compares with a constant of several values; Eltwise takes blobs, and Clip's bounds are numbers")
    numbers = [each for each in operands if isinstance(each, Number)]
    blobs = [op.as_blob(each) for each in operands if not isinstance(each, Number)]
    shapes = {each.shape for each in blobs}
    if len(shapes) != 1:
        op.refuse(f"shapes {' and '.join(map(str, sorted(shapes)))} differ; Eltwise takes one shape")
    (op.shape,) = shapes
    y = blobs[0]
    if blobs[1:]:
        if smallest:
            blobs = [op.layer("Power", [each], part="negated", power_param={"scale": -1}) for each in blobs]
        y = op.layer("Eltwise", blobs, eltwise_param={"operation": "MAX"})
        if smallest:
            y = op.layer("Power", [y], part="back", power_param={"scale": -1})
    if numbers:
        y = clipped(op, y, None, min(numbers)) if smallest else clipped(op, y, max(numbers), None)
    return y


def _covered(op: Operation, large: Shape, small: Shape) -> tuple[int, int]:
    """Return the axes of the large shape from the first to the last along which the small one, put behind, is long."""
    full = _padded(tuple(small), len(large))
    longer = [axis for axis, size in enumerate(full) if size not in (1, *large[axis : axis + 1])]
    if longer == [0] and len(full) == len(large):
        op.refuse(f"a value of shape {small} repeats the one item of {large}, which no layer does")
    if longer or len(full) != len(large):
        op.refuse(f"shapes {large} and {small} broadcast in both directions, which no layer does")
    long = [axis for axis, size in enumerate(full) if size != 1]
    return (long[0], long[-1] + 1) if long else (0, 0)


def with_constant(op: Operation, kind: str, x: Value, constant: Constant, bias: Constant | None = None) -> Value:
    """Add a Scale or Bias with a parameter, a Scale also with a bias of the same shape.

    What is to be repeated along axes between others is repeated, or, if it is trained, a blob.
    """
    is_for_items = constant.tensor.dim() == len(x.shape) > 0 and len(constant.tensor) == x.shape[0]
    if is_for_items and not constant.trained and bias is None:
        constant = _for_any_item(constant)
    shape = tuple(constant.tensor.shape)
    if bias is None and x.shape != op.shape and _is_repeated(op, x, shape):
        return _broadcast(op, kind, op.as_blob(constant), x)
    first, end = _covered(op, x.shape, shape)
    inner = _padded(shape, len(x.shape))[first:end]
    if inner != x.shape[first:end]:
        if constant.trained or bias is not None:
            y = _broadcast(op, kind, x, op.as_blob(constant))
            return y if bias is None else with_constant(op, "Bias", y, bias)
        constant = Constant(constant.tensor.reshape(inner).expand(x.shape[first:end]))
    blobs = [
        Constant(each.tensor.reshape(x.shape[first:end]), each.name, each.trained)
        for each in (constant, bias)
        if each is not None
    ]
    param: dict[str, int] = {"bias_term": 1} if bias is not None else {}
    if end == first:
        param["num_axes"] = 0
    elif (first, end) != (1, 2):
        param.update(axis=first, num_axes=end - first)
    fields: dict[str, Any] = {f"{kind.lower()}_param": param}
    return op.layer(kind, [x], blobs=blobs, **fields)


def _is_repeated(op: Operation, x: Value, shape: Shape) -> bool:
    """Return whether Tile layers can give a blob the result's shape, where a constant has more values along an axis."""
    if op.made.is_fixed(x):
        return shape == op.shape
    return len(x.shape) == len(op.shape) and _padded(shape, len(x.shape))[:1] == (1,)


def _for_any_item(constant: Constant) -> Constant:
    """Return a constant without what it repeats along its first axis, such as ones for each item of a batch."""
    one = constant.tensor[:1]
    return Constant(one, constant.name) if torch.equal(one.expand_as(constant.tensor), constant.tensor) else constant


def _are_alike(op: Operation, one: Value, two: Value) -> bool:
    """Return whether both values have a batch axis, or neither."""
    return op.made.is_fixed(one) == op.made.is_fixed(two)


def _broadcast(op: Operation, kind: str, one: Value, two: Value) -> Value:
    """Add a Scale or Bias with two bottoms, the second flattened to the axes that it covers.

    Tile layers repeat values along axes of size 1 between these, and where both values are repeated.
    """
    large, small = (one, two) if one.shape == op.shape else (two, one)
    is_larger = small.shape == op.shape or (large.shape != op.shape and not op.made.is_fixed(small))
    if op.made.is_fixed(large) and is_larger:
        large, small = small, large
    if large.shape != op.shape:
        large = expanded(op, large, op.shape)
    first, end = _covered(op, large.shape, small.shape)
    if op.made.is_fixed(small):
        small = reshaped(op, small, _padded(small.shape, len(large.shape))[first:end], "reshape")
    elif len(small.shape) == len(large.shape):
        first, end = 0, max(end, 1)  # from the batch axis on, also where the example has one item
        if small.shape[0] != large.shape[0]:
            op.refuse(f"shape {small.shape} has one value for all items of {large.shape}, which no layer computes")
    inner = _padded(small.shape, len(large.shape))[first:end] if len(small.shape) > end - first else small.shape
    covered = large.shape[first:end]
    if small.shape != inner:
        dims = [0 if axis == 0 and first == 0 else size for axis, size in enumerate(inner)]
        if inner == small.shape[:2]:
            small = op.layer("Flatten", [small], inner, part="flatten")
        else:
            small = op.layer("Reshape", [small], inner, part="reshape", reshape_param={"shape": {"dim": dims}})
    small = tiled(op, small, [size // own for size, own in zip(covered, inner, strict=True)])
    fields: dict[str, Any] = {f"{kind.lower()}_param": {"axis": first} if first != 1 else {}}
    return op.layer(kind, [large, small], **fields)


def _padded(shape: Shape, rank: int) -> Shape:
    """Return a shape with axes of size 1 in front, so many that it has that rank."""
    return (1,) * (rank - len(shape)) + shape
