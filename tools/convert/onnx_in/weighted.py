"""Operators with weights: convolutions, products with matrices, slopes."""

from __future__ import annotations

from mgcaffe.tools.convert.importing import activations, filters, products
from mgcaffe.tools.convert.importing.arithmetic import sum_of
from mgcaffe.tools.convert.importing.shapes import permuted, reshaped
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table
from mgcaffe.tools.convert.onnx_in.windows import axes_of


def _bias(op: Operation, outputs: int) -> Constant | None:
    return None if op.input(2) is None else op.weight(2, "bias", (outputs,))


def _filter(op: Operation, x: Value) -> tuple[Constant, list[int], int]:
    """Return the weight of a convolution, its kernel and the number of groups."""
    weight, groups = op.weight(1, "weight"), op.integer("group", 1)
    shape = tuple(weight.tensor.shape)
    op.check_shape(shape)
    if len(shape) < 3 or len(shape) != len(x.shape):
        op.refuse(f"its weight has shape {shape}, its input {x.shape}")
    kernel = list(shape[2:])
    if op.sizes("kernel_shape", len(kernel), 0) not in (kernel, [0] * len(kernel)):
        op.refuse(f"its kernel_shape is not that of its weight, {shape}")
    if not 1 <= groups <= x.shape[1] or x.shape[1] % groups or shape[0] % groups:
        op.refuse(f"its group is {groups}, its weight has shape {shape}, its input {x.shape}")
    return weight, kernel, groups


def convolution(op: Operation) -> Value:
    """Convolution; where more zeros are at one end, also a Slice."""
    x = op.blob(padded=True)
    weight, kernel, groups = _filter(op, x)
    outputs = weight.tensor.shape[0]
    if weight.tensor.shape[1] * groups != x.shape[1]:
        op.refuse(f"its weight has shape {tuple(weight.tensor.shape)}, its input {x.shape}")
    bias, axes = _bias(op, outputs), axes_of(op, x, kernel)
    op.shape = (x.shape[0], outputs, *(axis.count for axis in axes))
    op.check_shape(op.shape)
    return filters.convolution(op, x, weight, bias, axes=axes, groups=groups)


def transposed_convolution(op: Operation) -> Value:
    """Deconvolution; where more is cut off at one end, also a Slice."""
    x = op.blob()
    weight, kernel, groups = _filter(op, x)
    if weight.tensor.shape[0] != x.shape[1]:
        op.refuse(f"its weight has shape {tuple(weight.tensor.shape)}, its input {x.shape}")
    outputs, count = weight.tensor.shape[1] * groups, len(kernel)
    bias = _bias(op, outputs)
    strides, dilations = op.sizes("strides", count, 1), op.sizes("dilations", count, 1)
    more = op.sizes("output_padding", count, 0, least=0)
    full = [
        stride * (size - 1) + dilation * (width - 1) + 1
        for size, stride, dilation, width in zip(x.shape[2:], strides, dilations, kernel, strict=True)
    ]
    cuts = _cuts(op, x, full, more, strides)
    op.shape = (x.shape[0], outputs, *(size - one - two for size, (one, two) in zip(full, cuts, strict=True)))
    op.check_shape(op.shape)
    return filters.transposed_convolution(
        op, x, weight, bias, cuts=cuts, stride=strides, dilation=dilations, groups=groups
    )


def _cuts(op: Operation, x: Value, full: list[int], more: list[int], strides: list[int]) -> list[tuple[int, int]]:
    """Return what is cut off in front and behind of all that a ConvTranspose reaches."""
    count, mode = len(full), op.word("auto_pad", "NOTSET")
    pads = op.sizes("pads", 2 * count, 0, least=0)
    given = op.sizes("output_shape", count, 0)
    if mode == "VALID":
        pads = [0] * (2 * count)
    wanted = given if given[0] else None
    if mode in ("SAME_UPPER", "SAME_LOWER") and wanted is None:
        wanted = [size * stride for size, stride in zip(x.shape[2:], strides, strict=True)]
    if wanted is None:
        fronts, backs = pads[:count], pads[count:]
    else:
        whole = [size + extra - out for size, extra, out in zip(full, more, wanted, strict=True)]
        if any(size < 0 for size in whole):
            op.refuse(f"its output has size {wanted}, more than what its windows reach")
        small = [size // 2 for size in whole]
        large = [size - half for size, half in zip(whole, small, strict=True)]
        fronts, backs = (small, large) if mode == "SAME_UPPER" else (large, small)
    return [(front, back - extra) for front, back, extra in zip(fronts, backs, more, strict=True)]


def _transposed(weight: Constant) -> Constant:
    return Constant(weight.tensor.t(), weight.name and f"{weight.name}.T", weight.trained)


def general_product(op: Operation) -> Value:
    """InnerProduct; alpha and beta are multiplied into its parameters. Bias or Eltwise where C has several rows.

    With transA behind a Transpose it takes what that was given, behind other layers a Permute of it.
    """
    x, weight = op.blob(), op.weight(1, "B")
    if op.integer("transA", 0):
        x = _turned_back(op, x)
    if len(x.shape) != 2 or weight.tensor.dim() != 2:
        op.refuse(f"its matrices have shapes {x.shape} and {tuple(weight.tensor.shape)}")
    if not op.integer("transB", 0):
        weight = _transposed(weight)
    outputs, inputs = weight.tensor.shape
    if inputs != x.shape[1]:
        op.refuse(f"its input has {x.shape[1]} columns, and its weight is for {inputs}")
    alpha, beta = op.real("alpha", 1.0), op.real("beta", 1.0)
    if alpha != 1:
        weight = Constant(weight.tensor * alpha, trained=True)
    op.shape = (x.shape[0], outputs)
    addend = op.input(2) if beta else None
    if isinstance(addend, Value):
        addend = op.as_blob(addend)
        if op.broadcast(op.shape, addend.shape) != op.shape:
            op.refuse(f"its C has shape {addend.shape}, its result {op.shape}")
        y = filters.inner_product(op, x, weight, None)
        return sum_of(op, y, addend, beta)
    if addend is not None and addend.tensor.shape[:-1].numel() > 1:
        addend = op.weight(2, "C")
        if op.broadcast(op.shape, tuple(addend.tensor.shape)) != op.shape:
            op.refuse(f"its C has shape {tuple(addend.tensor.shape)}, its result {op.shape}")
        y = filters.inner_product(op, x, weight, None, "product")
        return sum_of(op, y, addend if beta == 1 else Constant(addend.tensor * beta, trained=True))
    bias = None if addend is None else _row(op, op.weight(2, "C"), outputs)
    if bias is not None and beta != 1:
        bias = Constant(bias.tensor * beta, trained=True)
    return filters.inner_product(op, x, weight, bias)


def _turned_back(op: Operation, x: Value) -> Value:
    """Return a matrix whose rows are the columns of another: what a Transpose before was given, or a Permute of it."""
    maker = op.made.maker_of(x)
    if maker.type == "Permute" and len(x.shape) == 2:
        return Value(maker.bottom[0], x.shape[::-1])
    if op.first_is_batch:
        op.refuse("it transposes its first matrix, whose rows are the items of the batch")
    return permuted(op, x, range(len(x.shape))[::-1], "turned")


def _row(op: Operation, addend: Constant, outputs: int) -> Constant:
    """Return what is added to each row; one number may stand for all."""
    shape = tuple(addend.tensor.shape)
    if addend.tensor.numel() == 1:
        return Constant(addend.tensor.reshape(1).repeat(outputs), trained=True)
    if shape not in ((outputs,), (1, outputs)):
        op.refuse(f"its C has shape {shape}; an InnerProduct adds one number to each of its {outputs} outputs")
    return Constant(addend.tensor.reshape(outputs), addend.name, addend.trained)


def product(op: Operation) -> Value:
    """InnerProduct over the last axis, with the bias that an Add behind it adds; MatMul of two values.

    Behind an InnerProduct with a vector is a Reshape.
    """
    if isinstance(op.input(0), Value) and isinstance(op.input(1), Value):
        return products.matrix_product(op, op.blob(0), op.blob(1))
    if isinstance(op.input(0), Constant):
        op.refuse("its first matrix is a constant; an InnerProduct has it as the second")
    x, weight = op.blob(), op.weight(1, "second matrix")
    if weight.tensor.dim() == 1 and len(x.shape) > 1 and len(weight.tensor) == x.shape[-1]:
        row = Constant(weight.tensor[None], weight.name, weight.trained)
        with op.step("product", (*x.shape[:-1], 1)):
            y = filters.inner_product(op, x, row, None)
        return reshaped(op, y, x.shape[:-1])
    if weight.tensor.dim() != 2 or len(x.shape) < 2 or weight.tensor.shape[0] != x.shape[-1]:
        op.refuse(f"its matrices have shapes {x.shape} and {tuple(weight.tensor.shape)}")
    outputs = weight.tensor.shape[1]
    op.shape = (*x.shape[:-1], outputs)
    return filters.inner_product(op, x, _transposed(weight), _sum_behind(op, outputs))


def _sum_behind(op: Operation, outputs: int) -> Constant | None:
    """Return the constant that the only reader adds to each row; that node is absorbed."""
    node = op.only_reader()
    if node is None or node.kind != "Add" or len(node.inputs) != 2:
        return None
    other = node.inputs[0 if node.inputs[1] == op.node.outputs[0] else 1]
    found = op.lookup(other)
    if not isinstance(found, Constant) or tuple(found.tensor.shape) != (outputs,):
        return None
    op.absorbed.append(node)
    return Constant(found.tensor, found.name, trained=True) if found.tensor.is_floating_point() else None


def slopes(op: Operation) -> Value:
    """PReLU, with one slope for all channels or one each."""
    x, slope = op.blob(), op.weight(1, "slope")
    shape = tuple(slope.tensor.shape)
    channels = (x.shape[1], *(1,) * (len(x.shape) - 2)) if len(x.shape) > 1 else ()
    if slope.tensor.numel() != 1:
        while len(shape) > len(channels) and shape[0] == 1:
            shape = shape[1:]
        if shape != channels:
            op.refuse(f"its slope has shape {tuple(slope.tensor.shape)}; PReLU has one slope a channel of {x.shape}")
        slope = Constant(slope.tensor.reshape(x.shape[1]), slope.name, slope.trained)
    return activations.prelu(op, x, slope)


OPERATORS: Table = {
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": general_product,
    "MatMul": product,
    "PRelu": slopes,
}
