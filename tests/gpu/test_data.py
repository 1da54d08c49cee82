"""Batches of records on their way to a GPU: made in pinned memory that is used again, and copied without waiting."""

from __future__ import annotations

import pytest
import torch

from tests.support.datakit import file_bytes, images, make

TRANSFORM = "transform_param { crop_size: 12 mirror: true mean_value: 100 }"


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batches_arrive_as_they_are_on_the_host(tmp_path, device, memory_format):
    for number, picture in enumerate(images(10, (16, 16, 3))):
        (tmp_path / f"{number}.jpg").write_bytes(file_bytes(picture, "JPEG"))
    (tmp_path / "list.txt").write_text("".join(f"{number}.jpg {number}\n" for number in range(10)))
    text = (
        f'name: "data" type: "ImageData" top: "data" top: "label" image_data_param {{ source: "{tmp_path}/list.txt" '
        f'root_folder: "{tmp_path}/" batch_size: 4 }} {TRANSFORM}'
    )
    context = {"seed": 3, "memory_format": memory_format}
    here, there = make(text, **context), make(text, device=device, **context)
    found = [there.forward([]) for _ in range(12)]  # more than are made ahead
    for batch in found:
        assert all(top.device.type == "cuda" for top in batch)
        for top, expected in zip(batch, here.forward([]), strict=True):
            assert torch.equal(top.cpu(), expected)
        assert batch[0].is_contiguous(memory_format=memory_format)
    there.close()
    here.close()
