"""The table of all operators: by name the function that makes layers of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mgcaffe.tools.convert.importing.values import Result
from mgcaffe.tools.convert.torch_in import (
    activations,
    arithmetic,
    counting,
    distances,
    look_ups,
    pooling,
    products,
    recurrent,
    resizing,
    shapes,
    weighted,
)
from mgcaffe.tools.convert.torch_in.operation import Operation

OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    **weighted.OPERATORS,
    **look_ups.OPERATORS,
    **products.OPERATORS,
    **recurrent.OPERATORS,
    **activations.OPERATORS,
    **arithmetic.OPERATORS,
    **distances.OPERATORS,
    **pooling.OPERATORS,
    **resizing.OPERATORS,
    **shapes.OPERATORS,
    **counting.OPERATORS,
}
"""By the operator's name in PyTorch, without namespace, overload and the underscore of working in place."""
