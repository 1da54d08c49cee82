"""Converts torchvision's models and compares both sides: the tables of docs/converting_*.md.

    python benchmarks/torchvision_models.py [--only NAME...] [--onnx] [--write]

Each model has seeded weights, and seeded statistics and factors in its normalization layers. It is exported in
evaluation mode, made a net, and both run on the same seeded image. Of some models of different families one training
step is compared as well, in float64: loss and gradients of all parameters, dropout off, BatchNorm by the batch.

With `--onnx` each model goes through both exporters of torch.onnx and ONNX in instead; onnxruntime is the other side.

`--write` replaces the tables in docs/converting_pytorch.md, or docs/converting_onnx.md. Needs torchvision
(`pip install --no-deps torchvision`), and with `--onnx` onnx, onnxruntime and onnxscript.
"""

from __future__ import annotations

import argparse
import gc
import logging
import re
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from mgcaffe.tools.convert.caffe_side import CaffeSide
from mgcaffe.tools.convert.caffe_training import CaffeTraining
from mgcaffe.tools.convert.onnx_files import read_onnx
from mgcaffe.tools.convert.onnx_side import OnnxSide
from mgcaffe.tools.convert.proof import compare, seeded_inputs
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_side import TorchSide
from mgcaffe.tools.convert.torch_training import TorchTraining
from mgcaffe.tools.convert.training_step import compare_steps

DOCS = Path(__file__).resolve().parents[1] / "docs"
MODELS = """
alexnet convnext_tiny convnext_small convnext_base densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l googlenet inception_v3 maxvit_t mnasnet0_5
mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large regnet_x_400mf regnet_x_800mf
regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf
regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf regnet_y_128gf resnet18 resnet34 resnet50 resnet101 resnet152
resnext50_32x4d resnext101_32x8d resnext101_64x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5
shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_t swin_s swin_b swin_v2_t swin_v2_s swin_v2_b vgg11 vgg11_bn
vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_l_16 vit_l_32 wide_resnet50_2 wide_resnet101_2
""".split()
NOT_THROUGH_ONNX = ("swin_v2_t", "swin_v2_s", "swin_v2_b")
"""The newer exporter writes their shifted windows with GatherND, which ONNX in refuses."""
OTHERS = """
fcn_resnet50 fcn_resnet101 deeplabv3_resnet50 deeplabv3_resnet101 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large
r3d_18 mc3_18 r2plus1d_18 s3d
""".split()
"""Models that segment images, and that classify videos."""
TRAINED = """
alexnet convnext_tiny densenet121 efficientnet_b0 googlenet mobilenet_v2 mobilenet_v3_small regnet_y_400mf resnet18
shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t vit_b_32 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large r3d_18
""".split()
"""Those whose training steps are compared: some of different families, and mobilenet_v3 for its activations."""
# Where the windows before the classifier or the places of patches need the whole image, or the smallest one is larger.
SIZES = {"alexnet": 224, "vgg": 224, "inception_v3": 96, "maxvit": 224, "vit": 224}
SIZE = 64
VIDEOS = {"r3d_18": (8, 32, 32), "mc3_18": (8, 32, 32), "r2plus1d_18": (8, 32, 32), "s3d": (16, 224, 224)}
"""Frames, height and width."""
STEP_BATCH = 4
EXPORTERS = {"TorchScript": False, "torch.export": True}
"""By the name in the table, what `dynamo` is for torch.onnx.export."""


def import_torchvision() -> Any:
    """Import torchvision beside a PyTorch that its C operators do not fit: these models need none of them."""
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
    if name in OTHERS and name not in VIDEOS:
        options = {"weights_backbone": None}
    models = import_torchvision().models
    folders = (models, models.segmentation, models.video)
    module = next(getattr(folder, name) for folder in folders if hasattr(folder, name))(weights=None, **options)
    randomize_statistics(module)
    return module


def randomize_statistics(module: torch.nn.Module) -> None:
    """Give BatchNorm layers random statistics and factors."""
    for part in module.modules():
        if isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d | torch.nn.BatchNorm3d):
            torch.nn.init.normal_(part.running_mean, std=0.1)
            torch.nn.init.uniform_(part.running_var, 0.5, 1.5)
            torch.nn.init.uniform_(part.weight, 0.5, 1.5)
            torch.nn.init.normal_(part.bias, std=0.1)


def size_of(name: str) -> int:
    """Return the height and width of the images that a model is run on."""
    return next((size for start, size in SIZES.items() if name.startswith(start)), SIZE)


def shape_of(name: str, batch: int = 1) -> tuple[int, ...]:
    """Return the shape of the input that a model is run on."""
    return (batch, 3, *VIDEOS.get(name, (size_of(name),) * 2))


def evaluate(model: Any, theirs: Any) -> tuple[float, float]:
    """Return the largest relative difference of the output, and of any value of the graph, in evaluation mode."""
    ours = CaffeSide(model.build())
    inputs = seeded_inputs(ours.inputs)
    expected = theirs.run({model.names[blob]: values for blob, values in inputs.items()})
    found = compare(ours.run(inputs), expected, model.names)
    output = next(each for each in found if model.names[each.name] == theirs.outputs[0])
    return output.largest_relative, found[0].largest_relative


def export_onnx(name: str, path: Path, *, dynamo: bool) -> None:
    """Write a model as an ONNX file, with one of the exporters of torch.onnx."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            example = (torch.zeros(shape_of(name)),)
            torch.backends.mha.set_fastpath_enabled(False)  # an operator that the older exporter does not know
            torch.onnx.export(seeded_model(name).eval(), example, str(path), dynamo=dynamo, verbose=False)
    finally:
        logging.disable(disabled)


def train(name: str) -> tuple[float, float, int]:
    """Return the relative differences of the loss and of the gradients (largest), and how many there are."""
    shape = shape_of(name, STEP_BATCH)
    program = export_module(seeded_model(name), shape, name)
    model = import_program(program, name=name, file=name)
    side = TorchSide(program)
    inputs = seeded_inputs({"data": shape})
    output = next(blob for blob, value in model.names.items() if value == side.outputs[0])
    scores = next(node.meta["val"].shape for node in program.graph.nodes if node.name == side.outputs[0])
    step = compare_steps(
        lambda: TorchTraining(program, model),
        lambda: CaffeTraining(model),
        inputs,
        (output, tuple(scores)),
    )
    return step.loss_apart, step.gradients[0].largest_relative, len(step.gradients)


def image_of(name: str) -> str:
    """Return what the tables say of the size of the input."""
    return " x ".join(map(str, VIDEOS[name])) if name in VIDEOS else str(size_of(name))


def rows_of_evaluation(names: list[str]) -> Iterator[str]:
    """Give the lines of the first table."""
    yield "| model | image | layers | output | any blob |"
    yield "|---|---|---|---|---|"
    for name in names:
        shape, started = shape_of(name), time.perf_counter()
        program = export_module(seeded_model(name), shape, name)
        model = import_program(program, name=name, file=name)
        layers = len(model.source.param.layer)
        output, worst = evaluate(model, TorchSide(program))
        print(f"  {name}: {time.perf_counter() - started:.1f} s", flush=True)
        yield f"| {name} | {image_of(name)} | {layers} | {output:.1e} | {worst:.1e} |"
        del program, model
        gc.collect()


def rows_of_training(names: list[str]) -> Iterator[str]:
    """Give the lines of the second table."""
    yield "| model | image | loss | gradients (largest) | parameters |"
    yield "|---|---|---|---|---|"
    for name in names:
        loss, gradients, count = train(name)
        print(f"  {name}: training step", flush=True)
        yield f"| {name} | {image_of(name)} | {loss:.1e} | {gradients:.1e} | {count} |"
        gc.collect()


def rows_of_onnx(names: list[str]) -> Iterator[str]:
    """Give the lines of the table of models that went through ONNX."""
    yield "| model | image | " + " | ".join(f"{name}: layers | output | any blob" for name in EXPORTERS) + " |"
    yield "|---" * (2 + 3 * len(EXPORTERS)) + "|"
    for name in names:
        started = time.perf_counter()
        cells: list[Any] = [name, image_of(name)]
        for dynamo in EXPORTERS.values():
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "net.onnx"
                export_onnx(name, path, dynamo=dynamo)
                model = read_onnx(path)
                output, worst = evaluate(model, OnnxSide(path))
            cells += [len(model.source.param.layer), f"{output:.1e}", f"{worst:.1e}"]
            del model
            gc.collect()
        row = f"| {' | '.join(map(str, cells))} |"
        print(f"  {row} {time.perf_counter() - started:.1f} s", flush=True)
        yield row


def write(page: Path, tables: dict[str, str]) -> None:
    """Replace the tables in a page, between their marks."""
    text = page.read_text(encoding="utf-8")
    for mark, table in tables.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}\n{end}{after}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS + OTHERS, metavar="NAME", help="these models alone")
    parser.add_argument("--onnx", action="store_true", help="through torch.onnx and ONNX in")
    parser.add_argument("--write", action="store_true", help="put the tables into the page in docs/")
    options = parser.parse_args()
    names = options.only or [name for name in MODELS + OTHERS if not options.onnx or name not in NOT_THROUGH_ONNX]
    if options.onnx:
        page, tables = DOCS / "converting_onnx.md", {"evaluation": "\n".join(rows_of_onnx(names))}
    else:
        page, tables = DOCS / "converting_pytorch.md", {
            "evaluation": "\n".join(rows_of_evaluation(names)),
            "training": "\n".join(rows_of_training([name for name in TRAINED if name in names])),
        }  # fmt: skip
    print("\n\n".join(tables.values()))
    if options.write:
        write(page, tables)


if __name__ == "__main__":
    main()
