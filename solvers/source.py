"""Where a solver's fields were given, in the user's files or as flags, for error messages."""

from __future__ import annotations

from mgcaffe.errors import Location
from mgcaffe.prototxt import SolverSource, Source


def locate(source: Source | None, field: str | None = None, index: int = 0) -> Location | None:
    """Locate a field of the solver (or of the file), if the prototxt's source is known.

    Args:
        source: what `mgcaffe.prototxt.read_solver_source` gave, or None.
        field: a field of SolverParameter; one that the file doesn't give yields the file's own place.
        index: which of a repeated field's entries.
    """
    if source is None:
        return None
    if not field:
        return source.location
    return source.locate(field, index) if isinstance(source, SolverSource) else source.field(field, index)
