"""The gradients between layers: handed from consumer to producer, freed at once, never copied but to be kept.

A layer may use the storage of a top's gradient for its own results if no other layer will read it. Gradients can
alias each other (an Eltwise sum hands the same tensor to both bottoms), so storages are counted.
"""

from __future__ import annotations

from collections import Counter

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels.precision import widened


class GradientStore:
    """Runs layers backward and keeps account of the gradients that are alive.

    Args:
        dtype, device: of gradients that start from nothing.
        keep: leave every gradient readable in its blob, and let no layer overwrite one.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, keep: bool) -> None:
        self.keep = keep
        self._dtype, self._device = dtype, device
        self._alive: dict[int, int] = {}  # how many gradients lie in a storage

    def backward(self, node: Node, loss_scale: float = 1.0) -> None:
        """Run one layer backward: take its tops' gradients, store its bottoms'.

        Args:
            node: the layer.
            loss_scale: a factor on the net's loss.
        """
        scaled_after = loss_scale != 1 and node.layer.may_ignore_top_diff and not node.owned and _is_loss_alone(node)
        before = 1.0 if scaled_after else loss_scale
        diffs = [self.take(blob, weight, before) for blob, weight in zip(node.tops, node.loss_weights, strict=True)]
        if not node.layer.takes_narrow:
            diffs = [widened(diff) for diff in diffs]
        if self.keep:
            node.layer.may_overwrite_top_diff = [False] * len(diffs)
        else:
            storages = [_storage(diff) for diff in diffs]
            counts = Counter(storages) if len(storages) > 1 else dict.fromkeys(storages, 1)
            node.layer.may_overwrite_top_diff = [
                each not in self._alive and counts[each] == 1 and 0 not in diff.stride()  # not where it is expanded
                for each, diff in zip(storages, diffs, strict=True)
            ]
        results = node.layer.backward(diffs, node.wants)
        others = diffs if self.keep else []
        del diffs
        if scaled_after:
            results = [None if diff is None else diff * loss_scale for diff in results]
        for blob, diff, wanted in zip(node.bottoms, results, node.wants, strict=True):
            if wanted and diff is not None:
                if self.keep:
                    diff = node.copy_if_shared(blob, diff, others)
                    others.append(diff)
                self.store(blob, diff)

    def take(self, blob: Blob, weight: float = 0.0, loss_scale: float = 1.0) -> torch.Tensor:
        """Return the gradient of a top: what its reader computed, or else its weight in the loss times `loss_scale`.

        In a net that keeps its blobs a user may have written it.
        """
        diff = blob.diff
        if diff is None or diff.shape != blob.shape or (weight and not self.keep):
            start = weight if self.keep else weight * loss_scale
            diff = torch.full(blob.shape, start, dtype=self._dtype, device=self._device)
            if self.keep:
                blob.diff = diff
        elif not self.keep:
            blob.diff = None
            self._forget(diff)
        return diff * loss_scale if self.keep and weight and loss_scale != 1 else diff

    def is_alone(self, blob: Blob) -> bool:
        """Return whether no other gradient lies in the memory of a blob's."""
        return blob.diff is None or self._alive.get(_storage(blob.diff), 0) <= 1

    def store(self, blob: Blob, diff: torch.Tensor) -> None:
        """Take note of the gradient of a bottom, for the layer that made it."""
        if self.keep:
            blob.diff = widened(diff)
            return
        if blob.diff is not None:
            self._forget(blob.diff)
        blob.diff = diff
        storage = _storage(diff)
        self._alive[storage] = self._alive.get(storage, 0) + 1

    def _forget(self, diff: torch.Tensor) -> None:
        storage = _storage(diff)
        left = self._alive.get(storage, 0) - 1
        if left > 0:
            self._alive[storage] = left
        else:
            self._alive.pop(storage, None)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_loss_alone(node: Node) -> bool:
    """Return whether all that a layer's gradients come from is its loss: no gradient comes from a reader of its tops.

    A user's layer may take no notice of the gradient of a top that is a loss.
    """
    tops = list(zip(node.tops, node.loss_weights, strict=True))
    is_read = any(not weight and blob.diff is not None and bool(blob.diff.any()) for blob, weight in tops)
    return any(node.loss_weights) and not is_read
