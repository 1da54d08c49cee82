import torch

from mgcaffe.engine.kernels.formats import format_of, from_pixel_rows, pixel_rows, preferred_memory_format
from mgcaffe.engine.kernels.precision import BF16, FLOAT32, FP16, TF32
from tests.support.layouts import random_input

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_a_part_of_a_channels_last_blob_is_channels_last() -> None:
    x = random_input((2, 6, 4, 5), "channels_last")
    assert format_of(x) == torch.channels_last
    assert format_of(x[:, 2:5]) == torch.channels_last
    assert format_of(random_input((2, 6, 4, 5))) == torch.contiguous_format
    assert format_of(random_input((2, 6))) == torch.contiguous_format


def test_pixel_rows_are_views_of_channels_last_blobs() -> None:
    x = random_input((2, 3, 4, 5), "channels_last")
    rows = pixel_rows(x)
    assert rows.data_ptr() == x.data_ptr()
    assert torch.equal(rows[7], x[0, :, 1, 2])
    assert torch.equal(from_pixel_rows(rows, 2, 4, 5), x)


def test_nets_with_windows_prefer_channels_last_on_a_cpu() -> None:
    wide, types = torch.float32, ["Data", "Convolution", "ReLU"]
    assert preferred_memory_format(types, CPU, wide, FLOAT32) == torch.channels_last
    assert preferred_memory_format(["Data", "InnerProduct"], CPU, wide, FLOAT32) == torch.contiguous_format
    assert preferred_memory_format(types, CPU, torch.float64, FLOAT32) == torch.contiguous_format


def test_on_a_gpu_they_do_where_products_are_in_16_bits_or_tf32() -> None:
    wide, types = torch.float32, ["Data", "Convolution", "ReLU"]
    assert preferred_memory_format(types, CUDA, wide, FLOAT32) == torch.contiguous_format
    for precision in (BF16, FP16, TF32):
        assert preferred_memory_format(types, CUDA, wide, precision) == torch.channels_last
        assert preferred_memory_format(["InnerProduct"], CUDA, wide, precision) == torch.contiguous_format
