"""Batches of records on their way to a GPU: made in pinned memory that is used again, and copied without waiting."""

from __future__ import annotations

import pytest
import torch

from tests.support.datakit import data_layer, encoded, images, write_lmdb

TRANSFORM = "transform_param { crop_size: 12 mirror: true mean_value: 100 }"


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batches_arrive_as_they_are_on_the_host(tmp_path, device, memory_format):
    pictures = images(10, (16, 16, 3))
    source = write_lmdb(tmp_path / "db", [encoded(each, "JPEG", number) for number, each in enumerate(pictures)])
    context = {"seed": 3, "memory_format": memory_format}
    here = data_layer(source, 4, TRANSFORM, **context)
    there = data_layer(source, 4, TRANSFORM, device=device, **context)
    found = [there.forward([]) for _ in range(12)]  # more than are made ahead
    for batch in found:
        assert all(top.device.type == "cuda" for top in batch)
        for top, expected in zip(batch, here.forward([]), strict=True):
            assert torch.equal(top.cpu(), expected)
        assert batch[0].is_contiguous(memory_format=memory_format)
    there.close()
    here.close()
