"""Manifests: what was written is found again, and every difference is named."""

import json

import pytest

from mgcaffe.errors import EXIT_BAD_INPUT, SnapshotError
from mgcaffe.solvers.snapshots.manifest import FileSum, Manifest, check_file, manifest_path, read_manifest


def manifest():
    weights, state = FileSum.of("a.caffemodel", b"weights"), FileSum.of("a.solverstate", b"state")
    return Manifest(7, 2, "Adam", 1700000000.125, True, weights, state)


def refusal(call, *args):
    with pytest.raises(SnapshotError) as caught:
        call(*args)
    assert caught.value.exit_code == EXIT_BAD_INPUT
    return caught.value.message


def test_what_is_written_is_read(tmp_path):
    state = tmp_path / "a.solverstate"
    assert read_manifest(state) is None
    manifest_path(state).write_bytes(manifest().encode())
    assert manifest_path(state) == tmp_path / "a.solverstate.manifest.json"
    assert read_manifest(state) == manifest()


def test_every_changed_value_is_found(tmp_path):
    state = tmp_path / "a.solverstate"
    values = json.loads(manifest().encode())
    for key in values:
        changed = {**values, key: {"name": "b"} if isinstance(values[key], dict) else 3}
        manifest_path(state).write_text(json.dumps(changed))
        assert str(manifest_path(state)) in refusal(read_manifest, state)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "[" * 50_000, '{"checksum": "a"}', '{"format": 2, "checksum": ""}']
)
def test_what_is_no_manifest_is_refused(tmp_path, text):
    state = tmp_path / "a.solverstate"
    manifest_path(state).write_text(text)
    assert str(manifest_path(state)) in refusal(read_manifest, state)


def test_a_file_is_named_with_what_differs(tmp_path):
    path, expected = tmp_path / "a", FileSum.of("a", b"content")
    assert "No such file" in refusal(check_file, path, expected)
    path.write_bytes(b"content"[:-1])
    assert refusal(check_file, path, expected) == f"{path} is cut short: 6 bytes, and 7 were written"
    path.write_bytes(b"contents")
    assert "is too long: 8 bytes" in refusal(check_file, path, expected)
    path.write_bytes(b"Content")
    assert f"{path} is damaged: its bytes have the SHA-256 " in refusal(check_file, path, expected)
    path.write_bytes(b"content")
    check_file(path, expected)
