"""Links in the documentation lead somewhere, and docs/walks.md names what is really in the files that it links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "examples/*/*.md",
        "benchmarks/results/*.md",
        "benchmarks/results/*/*.md",
        "models/*/*.md",
    )
    for path in ROOT.glob(pattern)
)
_LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\(([^)\s]+)\)")
_FILE = re.compile(r"`((?:[\w.]+/)*\w+\.(?:py|pyi|md|csv|toml|proto))`")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _text(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.*)$", _text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _links(page: Path) -> list[str]:
    return [link for link in _LINK.findall(_text(page)) if not re.match(r"[a-z]+:", link)]


def test_there_are_links_to_check():
    assert sum(len(_links(page)) for page in PAGES) > 200


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file_and_a_heading(page):
    lost = []
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target)):
            lost.append(link)
    assert not lost


def test_every_file_that_a_page_names_exists():
    """A name may leave out the folders above it; the changelog also names what is gone."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = {f"/{path.relative_to(ROOT)}" for folder in folders for path in folder.rglob("*.*")}
    files |= {f"/{path.name}" for path in ROOT.iterdir()}
    named = [(page, name) for page in PAGES if page.name != "CHANGELOG.md" for name in _FILE.findall(_text(page))]
    assert len(named) > 50
    lost = [(page.name, name) for page, name in named if not any(file.endswith(f"/{name}") for file in files)]
    assert not lost


def test_every_page_of_the_documentation_is_in_the_index():
    listed = {(ROOT / "docs" / link).resolve() for link in _links(ROOT / "docs/index.md")}
    assert {path for path in PAGES if path.parent == ROOT / "docs"} - {ROOT / "docs/index.md"} <= listed


def test_the_tables_of_every_benchmark_come_with_their_command():
    for path in (ROOT / "benchmarks/results").glob("*.md"):
        command = re.search(r"```sh\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
        assert command, path
        (script,) = set(re.findall(r"python (benchmarks/\w+\.py)", command[1]))
        assert (ROOT / script).is_file() and Path(script).stem == path.stem


def test_the_names_in_the_walks_occur_in_the_files_that_they_stand_beside():
    rows = re.findall(r"^\| \[[^\]]*\]\(([^)]+)\) \| ([^|]+) \|", _text(ROOT / "docs/walks.md"), re.MULTILINE)
    assert len(rows) > 60
    lost = []
    for link, cell in rows:
        names = re.findall(r"`([^`]+)`", cell)
        code = (ROOT / "docs" / link).read_text(encoding="utf-8") if names else ""
        lost += [f"{link}: {name}" for name in names if not re.search(rf"\b{re.escape(name)}\b", code)]
    assert not lost
