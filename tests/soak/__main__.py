"""Runs every check of this folder in full and prints a table; ends with 1 if one failed.

python -m tests.soak [NAME ...]     names choose some of them; --tenth runs what `make test` does
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

from tests import soak

MAX_SHOWN = 10


def main(words: list[str]) -> int:
    """Runs the checks that are named, or all."""
    full = "--tenth" not in words
    wanted = [word for word in words if word != "--tenth"]
    names = sorted(info.name for info in pkgutil.iter_modules(soak.__path__) if not info.name.startswith("__"))
    modules = [importlib.import_module(f"tests.soak.{name}") for name in names if not name.startswith("test_")]
    checks = {module.NAME: module for module in modules if hasattr(module, "NAME")}
    unknown = [name for name in wanted if name not in checks]
    if unknown:
        print(f"no such check: {', '.join(unknown)}; there are {', '.join(checks)}", file=sys.stderr)
        return 2
    print(soak.HEADER, flush=True)
    failures = []
    for name in wanted or checks:
        for row in checks[name].run(full):
            print(row, flush=True)
            failures += [f"{row.check}: {failure}" for failure in row.failures[:MAX_SHOWN]]
    print(*failures, sep="\n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
