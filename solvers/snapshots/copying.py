"""A copy of all that a snapshot holds, taken between two iterations, so that training can go on while it is written."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from google.protobuf.message import EncodeError

from mgcaffe.engine import Net
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import STEPS, VALUES, RowParameter, TableInShards, WholeRows
from mgcaffe.engine.weights.caffemodel import encode_caffemodel
from mgcaffe.engine.weights.hdf5 import encode_hdf5
from mgcaffe.errors import PrototxtError, SnapshotError
from mgcaffe.errors.whole_files import Content, size_of, write_aside
from mgcaffe.prototxt import LayerParameter, Phase
from mgcaffe.solvers.snapshots.files import cannot_write, publish
from mgcaffe.solvers.snapshots.manifest import FileSum, Manifest, manifest_path, read_manifest
from mgcaffe.solvers.snapshots.names import state_path, stored_shards, weights_path
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.state_file import encode_state
from mgcaffe.solvers.snapshots.state_hdf5 import encode_state_hdf5
from mgcaffe.solvers.snapshots.table_shards import TableShards, TablesOfTrainer0
from mgcaffe.solvers.update.updater import Updater


@dataclass(frozen=True)
class _CopiedLayer:
    """What the weights' encoders read of a layer."""

    name: str
    param: LayerParameter
    phase: Phase
    parameters: Sequence[Parameter]


class SnapshotCopy:
    """Weights, histories and progress at one moment, on the host.

    Args:
        net: the training net.
        updater: whose histories are saved.
        progress: where the solver stands.
        hdf5: whether the files are HDF5.
        with_diffs: whether the caffemodel also holds what the last update took off each weight.
        shards: has the tables written by those that have their rows, or stands for them; None: they are copied too.
    """

    def __init__(
        self,
        net: Net,
        updater: Updater,
        progress: Progress,
        *,
        hdf5: bool,
        with_diffs: bool,
        shards: TableShards | TablesOfTrainer0 | None = None,
    ) -> None:
        self.progress = progress
        self.hdf5 = hdf5
        self.with_diffs = with_diffs
        self._name = net.name
        self._shards = shards
        self._history = [
            _copy(blob) if shards is None or isinstance(blob, torch.Tensor) else shards.reference(blob)
            for blob in updater.history_blobs(net.parameters)
        ]
        self._layers = _copy_layers(net, with_diffs, shards)
        if shards is not None:
            shards.begin()

    @property
    def warnings(self) -> Sequence[str]:
        """What the user should know of how it was written."""
        return [] if self._shards is None else self._shards.warnings

    def encode_weights(self) -> Content:
        """Encode the caffemodel; its pieces lie in the copy's own memory."""
        layers = cast("Sequence[Layer]", self._layers)
        if self.hdf5:
            return encode_hdf5(layers, self.with_diffs)
        return encode_caffemodel(self._name, layers, self.with_diffs)

    def encode_state(self, weights: Path) -> Content:
        """Encode the solverstate, which names the caffemodel."""
        encode = encode_state_hdf5 if self.hdf5 else encode_state
        return encode(self.progress, str(weights), self._history)

    def write(self, prefix: Path, *, only_best: bool, written_at: float) -> Path:
        """Write shards, caffemodel, manifest and solverstate: all of them, or none.

        All are written under other names first, so that a full disk is found before the first one
        counts. They are renamed in that order: once there is a state, the rest is there. Where an older
        snapshot of this iteration is replaced, its state goes before anything else changes. One that holds the
        same bytes, by its manifest, stays, and only its manifest is replaced: a kill meanwhile must not cost the
        snapshot from which a run was resumed and stopped before its next update.

        Args:
            prefix: what the files' names begin with.
            only_best, written_at: as in the manifest.

        Returns:
            The solverstate's path.

        Raises:
            SnapshotError: they cannot be written; what was there before is untouched.
        """
        iteration = self.progress.iteration
        weights = weights_path(prefix, iteration, hdf5=self.hdf5)
        state = state_path(prefix, iteration, hdf5=self.hdf5)
        path, size = weights, 0
        sums: list[FileSum] = []
        shards = self._shards.finish() if self._shards is not None else []
        pending = [(Path(each.temporary), weights.with_name(each.sum.name)) for each in shards]
        try:
            for path in (weights, state):
                content = self._encode(path, weights)
                size = size_of(content)
                sums.append(FileSum.of(path.name, content))
                pending.append((write_aside(path, content), path))
                del content  # of a large net it is most of the memory that a snapshot takes
            path = manifest_path(state)
            ranks, solver_type = self.progress.world_size or 1, self.progress.solver_type or ""
            of_shards = [each.sum for each in shards]
            manifest = Manifest(iteration, ranks, solver_type, written_at, only_best, sums[0], sums[1], of_shards)
            content = manifest.encode()
            size = len(content)
            pending.append((write_aside(path, content), path))
            *in_shards, in_weights, in_state, in_manifest = pending
            if not shards and _is_there(weights, state, sums):
                publish([in_manifest], ())
            else:
                publish([*in_shards, in_weights, in_manifest, in_state], (state, manifest_path(state)))
        except OSError as error:
            _remove(pending)
            needed = sum(entry.size for entry in sums)
            if path == weights:
                needed += size_of(self._encode(state, weights))
            path = Path(error.filename2 or path)  # the name that a finished file could not be given
            raise cannot_write(path, error, size, needed) from None
        finally:
            _remove(pending)
        for stale in set(stored_shards(weights)) - {target for _, target in in_shards}:
            with suppress(OSError):  # of the snapshot that was replaced, with another number of shards
                stale.unlink()
        return state

    def _encode(self, path: Path, weights: Path) -> Content:
        try:
            return self.encode_weights() if path == weights else self.encode_state(weights)
        except (EncodeError, PrototxtError, ValueError) as error:
            raise SnapshotError(
                f"cannot write {path}: {error}",
                hint=None if self.hdf5 else "a binary file holds 2 GiB at most; set snapshot_format: HDF5",
            ) from None


def _is_there(weights: Path, state: Path, sums: Sequence[FileSum]) -> bool:
    """Return whether a whole snapshot with these sums of caffemodel and solverstate, and no shards, is on disk."""
    try:
        manifest = read_manifest(state)
        if manifest is None or manifest.shards or [manifest.weights, manifest.state] != sums:
            return False
        manifest.check(weights, state)
    except SnapshotError:
        return False
    return True


def _copy(tensor: torch.Tensor | WholeRows) -> torch.Tensor:
    return tensor.to("cpu", copy=True) if isinstance(tensor, torch.Tensor) else tensor.fetch()


def _copy_layers(net: Net, with_diffs: bool, shards: TableShards | TablesOfTrainer0 | None) -> list[_CopiedLayer]:
    """Copy the layers with their parameters; those that share values share the copy. Tables in shards are named."""
    data = _copy(net.arena.data)
    diff = _copy(net.arena.diff) if with_diffs else data  # else nobody reads it; with it no gradient lies apart
    in_arena = {id(piece.parameter) for piece in net.arena.slices}
    copies: dict[int, Parameter] = {}

    # Neither function may call itself: it would keep all these copies until the garbage collector comes by.
    def values_of(owner: Parameter) -> tuple[torch.Tensor, torch.Tensor]:
        if id(owner) in in_arena:
            return net.arena.view(data, owner), net.arena.view(diff, owner)
        values = _copy(_all_rows(owner, VALUES))
        if isinstance(owner, RowParameter):
            return values, (_copy(_all_rows(owner, STEPS)) if with_diffs else values)  # else nobody reads it
        return values, _copy(owner.diff)  # the weights of another net, shared with this one

    def copy(parameter: Parameter) -> Parameter:
        owner = parameter.owner or parameter
        if shards is not None and isinstance(owner, RowParameter) and owner.whole_values is not None:
            reference = shards.reference(owner.whole_values)
            return TableInShards(parameter.shape, name=parameter.name, owner=parameter.owner, reference=reference)
        if id(owner) not in copies:
            copies[id(owner)] = _filled(owner, *values_of(owner))
        copied = copies[id(owner)]
        if parameter is owner:
            return copied
        return _filled(parameter, copied.data.view(parameter.shape), copied.diff.view(parameter.shape))

    return [
        _CopiedLayer(layer.name, layer.param, layer.phase, [copy(parameter) for parameter in layer.parameters])
        for layer in net.layers
    ]


def _all_rows(owner: Parameter, kind: str) -> torch.Tensor | WholeRows:
    """Return a parameter's values or gradient; those of a table whose rows lie in several processes, as a whole."""
    if isinstance(owner, RowParameter) and owner.placement is not None:
        return owner.placement.whole(kind, owner.shape)
    return owner.data if kind == VALUES else owner.dense_diff()


def _filled(parameter: Parameter, values: torch.Tensor, gradient: torch.Tensor) -> Parameter:
    """Return a parameter of the same kind with other values; that of a table has a gradient of the table's size."""
    if isinstance(parameter, RowParameter):
        return Parameter(parameter.shape, name=parameter.name, owner=parameter.owner, data=values, diff=gradient)
    return replace(parameter, data=values, diff=gradient)


def _remove(pending: Sequence[tuple[Path, Path]]) -> None:
    for temporary, _ in pending:
        temporary.unlink(missing_ok=True)
