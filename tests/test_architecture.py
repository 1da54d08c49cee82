"""Rules of the package layout: allowed imports, how long files may be, what is installed, what importing costs."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mgcaffe

ROOT = Path(__file__).resolve().parents[1]
# Every package, and the packages of ours that it may import besides itself.
MAY_IMPORT = {
    "errors": set(),
    "prototxt": {"errors"},
    "comm": {"errors"},
    "engine": {"errors", "prototxt"},
    "solvers": {"errors", "prototxt", "comm", "engine"},
    "tools": {"errors", "prototxt", "comm", "engine", "solvers"},
    "pytorch": {"errors", "prototxt", "comm", "engine", "solvers", "tools"},
    "pycaffe": {"errors", "prototxt", "comm", "engine", "solvers", "tools"},
}
# Inside a package: each entry may import those before it (files of a folder as they like, but in no circle).
ORDER: dict[str, tuple[str, ...]] = {
    "errors": ("file_names", "checked_json", "whole_files"),
    "prototxt": (
        "foreign_text", "problems", "names", "schema_tables", "schema", "descriptor_pool",
        "render_schema", "render_stubs", "build_schema", "messages", "wire_format", "blobs", "lexer", "scalars",
        "binary", "source", "text_writer", "text_reader", "upgrade_v0", "upgrade_v1", "upgrade", "files", "stored",
    ),
    "comm": ("transport", "planning", "exchange.sums", "exchange", "tuning", "supervision", "tables", "replicas"),
    "engine": (
        "types", "heap", "one_call", "weights.safetensors", "weights.shards", "parameter", "row_parameter", "shard",
        "blob", "arena", "checks.memory", "kernels.processor", "kernels.precision", "kernels.choice.operation",
        "kernels.choice.choices", "kernels.choice", "layer_context", "layer", "host_copies", "host_blob", "user_layer",
        "user_errors", "checks.fork_fields", "checks.said_once", "checks.unused_fields", "checks.sizes", "registry",
        "kernels", "product_gradient", "fillers", "tables", "layers.shared", "weights.hdf5_image",
        "data.random_numbers", "data.batch_memory", "data.stages", "data.batches", "data.images", "data.record_source",
        "data.leveldb", "data.lmdb", "data", "layers", "graph", "weights", "built_net", "net", "capture", "tuning",
    ),
    "solvers": (
        "source", "events", "snapshots.names", "snapshots.files", "snapshots.manifest", "training_iteration",
        "carried_state", "loss_scale", "monitor.stopwatch", "exchange", "replicas", "monitor", "tables", "update.rules",
        "rates", "update", "setup", "serving", "testing", "snapshots", "trainer", "workers", "built_solver",
        "saved_solver", "solver",
    ),
    "pytorch": (
        "options", "parameters", "event_log", "failures", "ranks", "agreement", "module_state", "autograd_graph",
        "flat_gradients", "exchange", "arrivals", "backward_pass", "gradient_flow", "joining", "group_step",
        "merged_gradient_parallel", "measuring", "advice", "recording",
    ),
    "tools": (
        "table", "memory_table", "flags", "model", "net_trace", "data_times", "record_images", "upgrading",
        "speedup_plot", "listeners", "layer_times",
        "logs", "convert", "surgery", "classifier", "datasets", "timeline", "report", "scaling", "drawing", "running",
        "scripts", "launcher", "commands", "main",
    ),
    "pycaffe": (
        "alias", "problems", "mode", "blob", "draw", "nccl", "batching", "images", "net_spec", "coord_map", "bound_net",
        "net", "solvers", "transformer", "classifier", "detector", "proto", "io", "__main__",
    ),
}  # fmt: skip
# Packages whose `__init__` defines what it gives, and does not only import it.
DEFINING = ("mgcaffe.errors", "mgcaffe.solvers.events")
MAX_FILE_LINES = 500
TESTS = ROOT / "tests"
# Folders of tests that mirror none of the code: what spans packages, and what tests share.
SPANNING = ("mpi", "soak", "gpu", "support")
# What the code that computes must not use: the layers' backward passes are written here, not recorded. Modules of
# PyTorch are what `pytorch` is for.
FORBIDDEN = ("torch.nn", "torch.autograd", "torch.optim")


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@functools.cache
def _nodes(path: Path) -> tuple[ast.Module, list[ast.Import | ast.ImportFrom | ast.Call | ast.Attribute]]:
    """The tree of a file, and those of its nodes that are looked at here; each file is parsed once."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    looked_at = (ast.Import, ast.ImportFrom, ast.Call, ast.Attribute)
    return tree, [node for node in ast.walk(tree) if isinstance(node, looked_at)]


@pytest.fixture(scope="module", autouse=True)
def _free_trees() -> Iterator[None]:
    """Leave no trees behind: later garbage collections would look at each of their million nodes."""
    yield
    _nodes.cache_clear()


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a file imports, at its top or inside a function."""
    for node in _nodes(path)[1]:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _dynamic_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every string that names one of our packages, as importlib is given it."""
    for node in _nodes(path)[1]:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            for argument in ast.walk(node):
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("mgcaffe."):
                    yield node.lineno, str(argument.value)


def test_every_folder_that_is_installed_is_listed_here():
    namespace: dict[str, object] = {}
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    exec(compile(setup.partition("setup(\n")[0], "setup.py", "exec"), namespace)
    assert set(namespace["FOLDERS"]) == set(MAY_IMPORT)


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_only_in_the_allowed_direction(package):
    allowed = {package, *MAY_IMPORT[package]}
    wrong = []
    for path in _files(package):
        for line, name in [*_imports(path), *_dynamic_imports(path)]:
            parts = name.split(".")
            ours = parts[1] if parts[0] == "mgcaffe" and len(parts) > 1 else None
            if ours is not None and ours not in allowed:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {package} may not import mgcaffe.{ours}")
            if name == "mgcaffe":
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {package} may not import mgcaffe's Python entry")
            if parts[0] in MAY_IMPORT:
                wrong.append(f"{path.relative_to(ROOT)}:{line}: write mgcaffe.{name}")
            if name.startswith(FORBIDDEN) and package != "pytorch":
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name} has no place here")
    assert not wrong, "\n".join(wrong)


def _modules() -> dict[str, Path]:
    """Every module of ours by its full name; a package stands for its `__init__`."""
    modules = {}
    for package in MAY_IMPORT:
        for path in _files(package):
            name = "mgcaffe." + path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            modules[name.removesuffix(".__init__")] = path
    return modules


def _imported_modules(path: Path, modules: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """Line and name of each module of ours that a file imports, whole or a name from it."""
    for line, name in _imports(path):
        found = name if name in modules else name.rpartition(".")[0]
        if found in modules:
            yield line, found


def _place(package: str, module: str) -> int:
    """The position in ORDER of the most special entry that a module falls under."""
    inside = module.removeprefix(f"mgcaffe.{package}.")
    entries = [entry for entry in ORDER[package] if inside == entry or inside.startswith(entry + ".")]
    assert entries, f"{module} has no place in ORDER"
    return ORDER[package].index(max(entries, key=len))


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_inside_a_package_follow_its_order(package):
    """Nor does a file import through the `__init__` of a package that it is in, which would hide what it imports."""
    modules = _modules()
    wrong = []
    for name, path in modules.items():
        if not name.startswith(f"mgcaffe.{package}.") or path.name == "__init__.py":
            continue
        for line, imported in _imported_modules(path, modules):
            around = name.startswith(f"{imported}.") and imported not in DEFINING
            inside = imported.startswith(f"mgcaffe.{package}.")
            if around or (inside and _place(package, imported) > _place(package, name)):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {name} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_no_modules_import_each_other_in_a_circle():
    """Also not inside functions or for types alone; only a package's `__init__` loads its modules when asked."""
    modules = _modules()
    graph = {
        name: {imported for _, imported in _imported_modules(path, modules)}
        for name, path in modules.items()
        if path.name != "__init__.py"
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_python_entry_is_one_file_that_imports_every_name_it_loads_on_first_use():
    entry = ROOT / "mgcaffe" / "__init__.py"
    assert [path.name for path in sorted(entry.parent.rglob("*.py"))] == [entry.name]
    loaded = {f"mgcaffe.{module}.{name}" for name, module in mgcaffe._MODULE_OF.items()}
    assert {name for _, name in _imports(entry) if name.startswith("mgcaffe.")} == loaded
    assert ast.get_docstring(_nodes(entry)[0])


def test_the_walk_sees_an_import_inside_a_function(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def f():\n    from mgcaffe.tools import main\n    import mgcaffe.engine.net\n")
    assert [name for _, name in _imports(path)] == ["mgcaffe.tools.main", "mgcaffe.engine.net"]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_no_file_is_too_long_and_each_says_what_it_is_for(package):
    for path in _files(package):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MAX_FILE_LINES, f"{path.relative_to(ROOT)} is too long"
        assert ast.get_docstring(_nodes(path)[0]), f"{path.relative_to(ROOT)} opens without a docstring"


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_json_is_read_in_one_place(package):
    """Foreign JSON goes through errors/checked_json.py, which checks types and bounds."""
    readers = [
        str(path.relative_to(ROOT))
        for path in _files(package)
        for node in _nodes(path)[1]
        if isinstance(node, ast.Attribute)
        and getattr(node.value, "id", "") == "json"
        and node.attr in ("load", "loads")
    ]
    assert readers == (["errors/checked_json.py"] if package == "errors" else [])


def test_no_file_of_tests_is_too_long_or_changes_where_modules_are_found():
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= MAX_FILE_LINES, f"{path.relative_to(ROOT)} is too long"
        if "sys.path" not in text and "spec_from_file_location" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                changed = ast.unparse(node.func.value) == "sys.path" or node.func.attr == "spec_from_file_location"
                assert not changed, f"{path.relative_to(ROOT)}:{node.lineno}: put helpers into tests/support"


def test_tests_lie_where_their_code_lies_and_what_they_share_in_support():
    """Each folder of tests is named as one of the code, and holds tests and fixtures only."""
    for path in sorted(TESTS.rglob("*.py")):
        folder = path.parent.relative_to(TESTS)
        if folder.parts[:1] in [(name,) for name in SPANNING] or folder.name == "scripts":
            continue
        assert (ROOT / folder).is_dir(), f"tests/{folder} mirrors no folder of the code"
        assert path.name == "conftest.py" or path.name.startswith("test_"), f"{path.relative_to(ROOT)} is no test"


def test_everything_is_installed_inside_mgcaffe():
    """`comm`, `tools` and their like must not land in site-packages, where `comm` is Jupyter's."""
    probe = (
        "import runpy, setuptools\n"
        "seen = {}\n"
        "setuptools.setup = lambda **options: seen.update(options)\n"
        "runpy.run_path('setup.py')\n"
        "print(*seen['packages'], sep='\\n')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    packages = result.stdout.split()
    assert all(name.split(".")[0] == "mgcaffe" for name in packages)
    on_disk = {"mgcaffe"} | {
        f"mgcaffe.{path.parent.relative_to(ROOT).as_posix().replace('/', '.')}"
        for package in MAY_IMPORT
        for path in _files(package)
    }
    assert on_disk <= set(packages), f"not installed: {sorted(on_disk - set(packages))}"
    assert not [name for name in packages if "__pycache__" in name]


def test_every_package_is_marked_as_typed_and_its_stubs_are_installed():
    probe = (
        "import json, runpy, setuptools\n"
        "setuptools.setup = lambda **options: print(json.dumps(options['package_data']))\n"
        "runpy.run_path('setup.py')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert {"py.typed", "*.pyi"} <= set(json.loads(result.stdout)[""])
    assert all((ROOT / package / "py.typed").is_file() for package in MAY_IMPORT)


@pytest.mark.parametrize("package", ["engine", "solvers", "comm"])
def test_names_that_are_loaded_on_first_use_are_known_to_type_checkers(package):
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    known = {alias.name for node in ast.walk(blocks[0]) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert known == set(importlib.import_module(f"mgcaffe.{package}").__all__)


@pytest.mark.parametrize(
    "module", ["mgcaffe", "mgcaffe.engine", "mgcaffe.comm", "mgcaffe.prototxt", "mgcaffe.errors", "mgcaffe.tools.main"]
)
def test_importing_costs_neither_torch_nor_mpi(module):
    probe = f"import sys, {module}; sys.exit(sorted({{'torch', 'mpi4py'}} & set(sys.modules)) or 0)"
    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, f"import {module} loads {result.stderr}"
