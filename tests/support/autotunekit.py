"""A net whose operations `autotune` measures, trained for three iterations, and measuring that starts no process."""

from __future__ import annotations

import h5py
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.kernels.measuring import answer_all
from tests.support.solverkit import Recorder, data_layer, make_solver, weights_of

NET = "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'conv1' type: 'Convolution' bottom: 'data' top: 'c1' "
        "convolution_param { num_output: 3 kernel_size: 2 pad: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'relu' type: 'ReLU' bottom: 'c1' top: 'c1'",
        "name: 'conv2' type: 'Convolution' bottom: 'c1' top: 'c2' "
        "convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'conv3' type: 'Convolution' bottom: 'c2' top: 'c3' "
        "convolution_param { num_output: 2 kernel_size: 3 pad: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'conv4' type: 'Convolution' bottom: 'c3' top: 'c4' convolution_param { num_output: 2 kernel_size: 5 "
        "pad: 2 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'pool' type: 'Pooling' bottom: 'c4' top: 'p' pooling_param { kernel_size: 2 stride: 2 }",
        "name: 'ip' type: 'InnerProduct' bottom: 'p' top: 'ip' "
        "inner_product_param { num_output: 1 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


def measure_here(asked, bound):
    """Yield what `measuring.measure` does, measured in this process: one of its own loads torch anew."""
    for text, answer in zip(asked, answer_all(asked, bound), strict=True):
        assert answer.measured is not None, answer
        yield text, answer.measured


def write_images(folder):
    """Write 22 images with two channels, and a number for each; return the list file."""
    generator = torch.Generator().manual_seed(3)
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = torch.randn(22, 2, 3, 3, generator=generator).numpy()
        file["label"] = torch.randn(22, generator=generator).numpy()
    listing = folder / "data.txt"
    listing.write_text(f"{folder / 'data.h5'}\n")
    return listing


def read_channels_last(net):
    """Have HDF5Data's images come in the net's format, as those of Data do."""

    def convert(index):
        if index == 0:
            net.blobs["data"].data = net.blobs["data"].data.contiguous(memory_format=torch.channels_last)

    net.after_forward.append(convert)


def train(folder, fields, size=1, comm="", **options):
    """Train three iterations; return each rank's weights, recorder and training net's choices.

    Args:
        folder: takes the images.
        fields: the solver's.
        size: how many ranks.
        comm: fields of comm_param.
        options: the solver's own, beside its fields.
    """
    net = data_layer(write_images(folder), 8 // size) + NET

    def rank(communicator):
        recorder = Recorder()
        alone = None if size == 1 else communicator
        more = {"recorder": recorder, "communicator": alone, "dtype": torch.float32, **options}
        with make_solver(net, f"comm_param {{ schedule: SINGLE {comm} }} {fields}", folder, **more) as solver:
            read_channels_last(solver.net)
            solver.step(3)
            return weights_of(solver), recorder, solver.net.context.choices

    return run_ranks(size, rank)


def texts(recorder, kind):
    """Return what events of a kind say of `autotune`."""
    return [event.text for event in recorder.of(kind) if event.text.startswith("autotune")]
