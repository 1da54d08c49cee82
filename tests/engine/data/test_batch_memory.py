"""Batches whose memory goes round: nothing is allocated in a steady run, and nothing that is kept is written over."""

import tracemalloc

import numpy as np
import pytest
import torch

from mgcaffe.engine.data.batch_memory import BatchMemory
from mgcaffe.engine.data.batches import BatchForm
from tests.support.datakit import data_layer, datum, encoded, images, write_lmdb

BATCH = 8
TRANSFORM = "transform_param { crop_size: 60 mirror: true mean_value: 3 scale: 0.5 }"
BYTES = BATCH * 3 * 60 * 60 * 4


@pytest.fixture(params=["pixels", "JPEG"])
def source(request, tmp_path):
    pictures = images(20, (3, 64, 64))
    if request.param == "pixels":
        return write_lmdb(tmp_path / "db", [datum(each, n) for n, each in enumerate(pictures)])
    return write_lmdb(tmp_path / "db", [encoded(each.transpose(1, 2, 0), "JPEG", n) for n, each in enumerate(pictures)])


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_memory_of_batches_that_are_gone_is_used_again_and_that_of_kept_ones_is_not(source, memory_format):
    keeping, dropping = (data_layer(source, BATCH, TRANSFORM, seed=5, memory_format=memory_format) for _ in range(2))
    kept = [keeping.forward([])[0] for _ in range(30)]
    assert len({each.data_ptr() for each in kept}) == 30
    addresses = set()
    for each in kept:
        batch = dropping.forward([])[0]
        assert torch.equal(batch, each) and batch.stride() == each.stride()
        addresses.add(batch.data_ptr())
        del batch
    assert len(addresses) <= dropping.prefetch + 2
    keeping.close()
    dropping.close()


def test_a_steady_iteration_allocates_no_batch(source):
    layer = data_layer(source, BATCH, TRANSFORM, seed=5)
    layer.param.data_param.prefetch = 0
    held = [layer.forward([]) for _ in range(3)][-1]
    tracemalloc.start()
    try:
        for _ in range(5):
            held = layer.forward([])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Images as they were loaded and windows that are staged have a byte a value, where a batch has four.
    assert peak < BYTES
    assert held[0].shape == (BATCH, 3, 60, 60)


def test_memory_of_another_size_is_let_go_of():
    memory = BatchMemory()
    first, second = memory.empty((4, 3), np.dtype(np.float32)), memory.empty((4, 3), np.dtype(np.float32))
    address = first.ctypes.data
    assert second.ctypes.data != address
    view = first[1:].reshape(-1)
    del first
    assert memory.empty((4, 3), np.dtype(np.float32)).ctypes.data != address  # the view still refers to it
    del view
    assert memory.empty((2, 6), np.dtype(np.float32)).ctypes.data == address
    memory.empty((4, 3), np.dtype(np.float64))
    assert len(memory._kept) == 2  # the new one and the one that is in use


def test_batches_for_a_gpu_are_written_straight_into_pinned_memory(monkeypatch):
    made, copied = [], []
    empty = torch.empty

    def pinned_empty(shape, *, dtype, pin_memory):
        assert pin_memory
        made.append(empty(shape, dtype=dtype))
        return made[-1]

    monkeypatch.setattr(torch, "empty", pinned_empty)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: copied.append(self) or self)
    memory = BatchMemory(pinned=True)
    form = BatchForm(np.dtype(np.float32), channels_last=True, memory=memory)
    batch, labels = form.empty((2, 3, 4, 5)), np.arange(2, dtype=np.float32)
    batch[...] = np.arange(batch.size).reshape(batch.shape)
    tensors = memory.tensors([batch, labels])
    assert tensors[0].data_ptr() == made[0].data_ptr() and tensors[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(tensors[0], torch.arange(120, dtype=torch.float32).reshape(2, 3, 4, 5))
    assert len(copied) == 1 and copied[0].tolist() == [0, 1]
    assert memory.tensors([labels])[0].tolist() == [0, 1] and not memory._given
