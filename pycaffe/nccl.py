"""The name NCCL, so that scripts that look for it get an answer."""

from __future__ import annotations

from typing import Any

from mgcaffe.errors import UsageError


class NCCL:
    """Refused: ranks are joined by MPI, and `engine train` joins them.

    Raises:
        UsageError: always.
    """

    def __init__(self, *arguments: Any) -> None:
        raise UsageError(
            "caffe.NCCL joins the processes that a script forks; here ranks are joined by MPI",
            hint="train with `mpirun -n RANKS engine train SOLVER`",
        )

    @staticmethod
    def new_uid() -> str:
        """Refused likewise."""
        NCCL()
        return ""
