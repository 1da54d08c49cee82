"""Converts torchvision's classification models and compares both sides: the tables of docs/converting_pytorch.md.

    python benchmarks/torchvision_models.py [--only NAME...] [--write]

Each model has seeded weights, and seeded statistics and factors in its normalization layers. It is exported in
evaluation mode, made a net, and both run on the same seeded image. Of ten models of different families one training
step is compared as well, in float64: loss and gradients of all parameters, dropout off, BatchNorm by the batch.

`--write` replaces the tables in docs/converting_pytorch.md. Needs torchvision (`pip install --no-deps torchvision`).
"""

from __future__ import annotations

import argparse
import gc
import re
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgcaffe.tools.convert.caffe_side import CaffeSide
from mgcaffe.tools.convert.proof import compare, seeded_inputs
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_side import TorchSide, training_step
from mgcaffe.tools.convert.training_step import caffe_training_step, largest_difference

PAGE = Path(__file__).resolve().parents[1] / "docs" / "converting_pytorch.md"
MODELS = """
alexnet convnext_tiny convnext_small convnext_base densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l googlenet inception_v3 mnasnet0_5 mnasnet0_75
mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large regnet_x_400mf regnet_x_800mf regnet_x_1_6gf
regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf regnet_y_3_2gf
regnet_y_8gf regnet_y_16gf regnet_y_32gf regnet_y_128gf resnet18 resnet34 resnet50 resnet101 resnet152
resnext50_32x4d resnext101_32x8d resnext101_64x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5
shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
wide_resnet50_2 wide_resnet101_2
""".split()
TRAINED = """
alexnet convnext_tiny densenet121 efficientnet_b0 googlenet mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18
shufflenet_v2_x0_5 squeezenet1_1
""".split()
"""Those whose training steps are compared: ten of different families, and mobilenet_v3 for its activations."""
# Where the windows before the classifier need the whole image, and where the smallest one is larger.
SIZES = {"alexnet": 224, "vgg": 224, "inception_v3": 96}
SIZE = 64
CLASSES = 1000
STEP_BATCH = 4


def import_torchvision() -> Any:
    """Import torchvision beside a PyTorch that its C operators do not fit: classification models need none of them."""
    import importlib

    try:
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        pass
    file = Path(sysconfig.get_paths()["purelib"]) / "torchvision" / "_meta_registrations.py"
    names = set(re.findall(r"(?:register_meta\(\"|torchvision::)(\w+)\"", file.read_text(encoding="utf-8")))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in sorted({*names, "nms", "qnms"}):
        library.define(f"{name}(Tensor x) -> Tensor")
    import_torchvision.library = library  # type: ignore[attr-defined]  # which undefines them when it is collected
    return importlib.import_module("torchvision")


def seeded_model(name: str) -> torch.nn.Module:
    """Return a model whose weights, statistics and factors are random, the same every time."""
    torch.manual_seed(0)
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    module = getattr(import_torchvision().models, name)(weights=None, **options)
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.running_mean, std=0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.normal_(part.bias, std=0.1)
    return module


def size_of(name: str) -> int:
    """Return the height and width of the images that a model is run on."""
    return next((size for start, size in SIZES.items() if name.startswith(start)), SIZE)


def evaluate(name: str, program: Any, model: Any) -> tuple[float, float]:
    """Return the largest relative difference of the output, and of any value of the graph, in evaluation mode."""
    ours, theirs = CaffeSide(model.build()), TorchSide(program)
    inputs = seeded_inputs(ours.inputs)
    expected = theirs.run({model.names[blob]: values for blob, values in inputs.items()})
    found = compare(ours.run(inputs), expected, model.names)
    output = next(each for each in found if model.names[each.name] == theirs.outputs[0])
    return output.largest_relative, found[0].largest_relative


def train(name: str) -> tuple[float, float, int]:
    """Return the relative differences of the loss and of the gradients (largest), and how many there are."""
    size = size_of(name)
    program = export_module(seeded_model(name), (STEP_BATCH, 3, size, size), name)
    model = import_program(program, name=name, file=name)
    side = TorchSide(program)
    inputs = seeded_inputs({"data": (STEP_BATCH, 3, size, size)})
    labels = np.random.default_rng(1).integers(0, CLASSES, STEP_BATCH).astype(np.float32)
    output = next(blob for blob, value in model.names.items() if value == side.outputs[0])
    loss, gradients = caffe_training_step(model, inputs, labels, output=output)
    expected_loss, expected = training_step(program, {model.names["data"]: inputs["data"]}, labels)
    worst = largest_difference(gradients, expected, model.parameters)
    return abs(loss - expected_loss) / abs(expected_loss), worst, len(gradients)


def rows_of_evaluation(names: list[str]) -> Iterator[str]:
    """Give the lines of the first table."""
    yield "| model | image | layers | output | any blob |"
    yield "|---|---|---|---|---|"
    for name in names:
        size, started = size_of(name), time.perf_counter()
        program = export_module(seeded_model(name), (1, 3, size, size), name)
        model = import_program(program, name=name, file=name)
        layers = len(model.source.param.layer)
        output, worst = evaluate(name, program, model)
        print(f"  {name}: {time.perf_counter() - started:.1f} s", flush=True)
        yield f"| {name} | {size} | {layers} | {output:.1e} | {worst:.1e} |"
        del program, model
        gc.collect()


def rows_of_training(names: list[str]) -> Iterator[str]:
    """Give the lines of the second table."""
    yield "| model | image | loss | gradients (largest) | parameters |"
    yield "|---|---|---|---|---|"
    for name in names:
        loss, gradients, count = train(name)
        print(f"  {name}: training step", flush=True)
        yield f"| {name} | {size_of(name)} | {loss:.1e} | {gradients:.1e} | {count} |"
        gc.collect()


def write(tables: dict[str, str]) -> None:
    """Replace the tables in the page, between their marks."""
    text = PAGE.read_text(encoding="utf-8")
    for mark, table in tables.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=MODELS, metavar="NAME", help="these models alone")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/converting_pytorch.md")
    options = parser.parse_args()
    tables = {
        "evaluation": "\n".join(rows_of_evaluation(options.only)),
        "training": "\n".join(rows_of_training([name for name in TRAINED if name in options.only])),
    }
    print("\n\n".join(tables.values()))
    if options.write:
        write(tables)


if __name__ == "__main__":
    main()
