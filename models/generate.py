"""Writes the nets that repeat themselves: models/googlenet and models/resnet50, train_val and deploy.

    python models/generate.py            # writes the four files anew
    python models/generate.py --check    # writes nothing; fails if a file differs from what would be written

Each net is described once. Its deploy form is the same description without data, losses, heads that only
train, fillers and multipliers. The files are committed, since people read prototxts and not this.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

MODELS = Path(__file__).resolve().parent
WIDTH = 110

XAVIER = 'weight_filler { type: "xavier" }'
MSRA = 'weight_filler { type: "msra" }'
MULTIPLIERS = "param { lr_mult: 1  decay_mult: 1 }  param { lr_mult: 2  decay_mult: 0 }"

# Widths of an inception module: 1x1, 3x3 reduce, 3x3, 5x5 reduce, 5x5, pool projection (paper, table 1).
INCEPTION = {
    "3a": (64, 96, 128, 16, 32, 32),
    "3b": (128, 128, 192, 32, 96, 64),
    "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64),
    "4c": (128, 128, 256, 24, 64, 64),
    "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128),
    "5a": (256, 160, 320, 32, 128, 128),
    "5b": (384, 192, 384, 48, 128, 128),
}
# Auxiliary heads and pools stand after these modules.
AUXILIARY_HEADS = {"4a": "loss1", "4d": "loss2"}
POOL_AFTER = {"3b": "pool3/3x3_s2", "4e": "pool4/3x3_s2"}

# Residual stages: name, blocks, width of the two inner convolutions (paper, table 1; output is 4 times that).
STAGES = ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512))


class NetText:
    """A net's text, written layer by layer."""

    def __init__(self, header: str, training: bool) -> None:
        self.training = training
        self.text = header

    def blank(self) -> None:
        """Separate two parts of the net."""
        self.text += "\n"

    def layer(self, name: str, kind: str, bottoms: list[str], tops: list[str], *fields: str) -> str:
        """Write one layer, on one line where it fits; return its first top."""
        blobs = [f'bottom: "{blob}"' for blob in bottoms] + [f'top: "{blob}"' for blob in tops]
        head = "  ".join([f'name: "{name}"', f'type: "{kind}"', *blobs])
        if len(bottoms) > 2:
            head = f'name: "{name}"  type: "{kind}"\n  ' + "\n  ".join(blobs)
        lines = [head, *(field for field in fields if field)]
        if len(lines) == 1 and "\n" not in head and len(head) + len("layer {  }") <= WIDTH:
            self.text += f"layer {{ {head} }}\n"
        else:
            self.text += "layer {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
        return tops[0]

    def block(self, name: str, fields: str, *training_fields: str) -> str:
        """Return a nested message: on one line, or, while training adds fields to it, on a line for each part."""
        if not self.training or not training_fields:
            return f"{name} {{ {fields} }}"
        return f"{name} {{\n    {fields}\n    {'  '.join(training_fields)}\n  }}"

    def relu(self, name: str, blob: str) -> str:
        """Write a ReLU in place; return its top."""
        return self.layer(name, "ReLU", [blob], [blob])

    def pool(self, name: str, bottom: str, method: str, kernel: int, stride: int, pad: int = 0) -> str:
        """Write a pooling layer; return its top."""
        padding = f"  pad: {pad}" if pad else ""
        geometry = f"kernel_size: {kernel}  stride: {stride}{padding}"
        return self.layer(name, "Pooling", [bottom], [name], f"pooling_param {{ pool: {method}  {geometry} }}")

    def data(self, deploy_batch: int) -> None:
        """Write the ImageNet sources for both phases, or the input of a deployed net (images of 224x224, BGR)."""
        if not self.training:
            shape = f"shape {{ dim: {deploy_batch}  dim: 3  dim: 224  dim: 224 }}"
            self.layer("data", "Input", [], ["data"], f"input_param {{ {shape} }}")
            return
        means = "mean_value: 104  mean_value: 117  mean_value: 123"
        for phase, folder, batch, mirror in (("TRAIN", "train", 32, "true"), ("TEST", "val", 50, "false")):
            source = f'source: "examples/imagenet/ilsvrc12_{folder}_lmdb"'
            self.layer(
                "data",
                "Data",
                [],
                ["data", "label"],
                f"include {{ phase: {phase} }}",
                f"transform_param {{ mirror: {mirror}  crop_size: 224  {means} }}",
                f"data_param {{ {source}  batch_size: {batch}  backend: LMDB }}",
            )

    def accuracies(self, scores: str, prefix: str) -> None:
        """Top-1 and top-5 accuracy, while testing."""
        for top_k in (1, 5):
            name = f"{prefix}top-{top_k}"
            rank = f"accuracy_param {{ top_k: {top_k} }}" if top_k > 1 else ""
            self.layer(name, "Accuracy", [scores, "label"], [name], "include { phase: TEST }", rank)


def geometry(outputs: int, kernel: int, stride: int = 1, pad: int = 0, bias: bool = True) -> str:
    """Return the fields of a convolution that say its shape."""
    fields = [f"num_output: {outputs}", f"kernel_size: {kernel}"]
    fields += [f"stride: {stride}"] if stride > 1 else []
    fields += [f"pad: {pad}"] if pad else []
    fields += [] if bias else ["bias_term: false"]
    return "  ".join(fields)


def googlenet(training: bool) -> str:
    """GoogLeNet: nine inception modules, and while training two auxiliary heads."""
    use = "training" if training else "inference"
    net = NetText(
        f"# GoogLeNet for {use}. Written by models/generate.py: change that, then run it.\n"
        '# After Szegedy et al., "Going deeper with convolutions", 2014.\nname: "GoogLeNet"\n\n',
        training,
    )
    net.data(10)
    net.blank()
    blob = googlenet_conv(net, "conv1/7x7_s2", "conv1/relu_7x7", "data", geometry(64, 7, 2, 3))
    blob = net.pool("pool1/3x3_s2", blob, "MAX", 3, 2)
    blob = googlenet_norm(net, "pool1/norm1", blob)
    blob = googlenet_conv(net, "conv2/3x3_reduce", "conv2/relu_3x3_reduce", blob, geometry(64, 1))
    blob = googlenet_conv(net, "conv2/3x3", "conv2/relu_3x3", blob, geometry(192, 3, 1, 1))
    blob = googlenet_norm(net, "conv2/norm2", blob)
    blob = net.pool("pool2/3x3_s2", blob, "MAX", 3, 2)
    for module, widths in INCEPTION.items():
        net.blank()
        blob = inception(net, f"inception_{module}", blob, widths)
        if module in POOL_AFTER:
            blob = net.pool(POOL_AFTER[module], blob, "MAX", 3, 2)
        if training and module in AUXILIARY_HEADS:
            net.blank()
            auxiliary_head(net, AUXILIARY_HEADS[module], blob)
    net.blank()
    blob = net.pool("pool5/7x7_s1", blob, "AVE", 7, 1)
    net.layer("pool5/drop_7x7_s1", "Dropout", [blob], [blob], "dropout_param { dropout_ratio: 0.4 }")
    scores = googlenet_product(net, "loss3/classifier", blob, 1000, 0)
    if not training:
        net.layer("prob", "Softmax", [scores], ["prob"])
        return net.text
    net.layer("loss3/loss3", "SoftmaxWithLoss", [scores, "label"], ["loss3/loss3"], "loss_weight: 1")
    net.accuracies(scores, "loss3/")
    return net.text


def googlenet_conv(net: NetText, name: str, relu: str, bottom: str, shape: str) -> str:
    """Write a convolution, its bias starting at 0.2, and its ReLU."""
    bias = 'bias_filler { type: "constant"  value: 0.2 }'
    multipliers = MULTIPLIERS if net.training else ""
    convolution = net.block("convolution_param", shape, XAVIER, bias)
    net.layer(name, "Convolution", [bottom], [name], multipliers, convolution)
    return net.relu(relu, name)


def googlenet_norm(net: NetText, name: str, bottom: str) -> str:
    """Local response normalisation across five channels."""
    return net.layer(name, "LRN", [bottom], [name], "lrn_param { local_size: 5  alpha: 0.0001  beta: 0.75 }")


def googlenet_product(net: NetText, name: str, bottom: str, outputs: int, bias: float) -> str:
    """Write an inner product."""
    filler = f'bias_filler {{ type: "constant"  value: {bias} }}'
    multipliers = MULTIPLIERS if net.training else ""
    product = net.block("inner_product_param", f"num_output: {outputs}", XAVIER, filler)
    return net.layer(name, "InnerProduct", [bottom], [name], multipliers, product)


def inception(net: NetText, module: str, bottom: str, widths: tuple[int, ...]) -> str:
    """Write an inception module: 1x1, 3x3, 5x5 and pooled branches, concatenated."""
    one, three_reduce, three, five_reduce, five, pooled = widths

    def conv(branch: str, blob: str, shape: str) -> str:
        return googlenet_conv(net, f"{module}/{branch}", f"{module}/relu_{branch}", blob, shape)

    outputs = [conv("1x1", bottom, geometry(one, 1))]
    blob = conv("3x3_reduce", bottom, geometry(three_reduce, 1))
    outputs.append(conv("3x3", blob, geometry(three, 3, 1, 1)))
    blob = conv("5x5_reduce", bottom, geometry(five_reduce, 1))
    outputs.append(conv("5x5", blob, geometry(five, 5, 1, 2)))
    blob = net.pool(f"{module}/pool", bottom, "MAX", 3, 1, 1)
    outputs.append(conv("pool_proj", blob, geometry(pooled, 1)))
    return net.layer(f"{module}/output", "Concat", outputs, [f"{module}/output"])


def auxiliary_head(net: NetText, head: str, bottom: str) -> None:
    """Write a second classifier half-way up, whose loss counts 0.3; it only trains."""
    blob = net.pool(f"{head}/ave_pool", bottom, "AVE", 5, 3)
    blob = googlenet_conv(net, f"{head}/conv", f"{head}/relu_conv", blob, geometry(128, 1))
    blob = net.relu(f"{head}/relu_fc", googlenet_product(net, f"{head}/fc", blob, 1024, 0.2))
    net.layer(f"{head}/drop_fc", "Dropout", [blob], [blob], "dropout_param { dropout_ratio: 0.7 }")
    scores = googlenet_product(net, f"{head}/classifier", blob, 1000, 0)
    # The published net calls the first two losses' blobs lossN/loss1; logs and scripts know them by that.
    net.layer(f"{head}/loss", "SoftmaxWithLoss", [scores, "label"], [f"{head}/loss1"], "loss_weight: 0.3")
    net.accuracies(scores, f"{head}/")


def resnet50(training: bool) -> str:
    """ResNet-50: a stem, sixteen bottleneck blocks in four stages, one classifier."""
    use = "training" if training else "inference"
    net = NetText(
        f"# ResNet-50 for {use}. Written by models/generate.py: change that, then run it.\n"
        '# After He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2015.\n'
        'name: "ResNet-50"\n\n',
        training,
    )
    net.data(1)
    net.blank()
    bias = ('bias_filler { type: "constant" }',)
    blob = resnet_conv(net, "conv1", "data", geometry(64, 7, 2, 3), ("bn_conv1", "scale_conv1"), bias)
    blob = net.pool("pool1", net.relu("conv1_relu", blob), "MAX", 3, 2)
    for stage, blocks, width in STAGES:
        for index in range(blocks):
            # Inside a stage the blocks are lettered: res2a, res2b, ...
            net.blank()
            stride = 2 if index == 0 and stage > 2 else 1
            blob = bottleneck(net, f"{stage}{chr(ord('a') + index)}", blob, width, stride, index == 0)
    net.blank()
    blob = net.pool("pool5", blob, "AVE", 7, 1)
    product = net.block("inner_product_param", "num_output: 1000", XAVIER, *bias)
    scores = net.layer("fc1000", "InnerProduct", [blob], ["fc1000"], product)
    if not training:
        net.layer("prob", "Softmax", [scores], ["prob"])
        return net.text
    net.layer("loss", "SoftmaxWithLoss", [scores, "label"], ["loss"])
    net.accuracies(scores, "")
    return net.text


def resnet_conv(
    net: NetText,
    name: str,
    bottom: str,
    shape: str,
    norm_names: tuple[str, str],
    bias: tuple[str, ...] = (),
) -> str:
    """Write a convolution, batch normalisation and the scale and shift that belong to it, both in place."""
    convolution = net.block("convolution_param", shape, MSRA, *bias)
    net.layer(name, "Convolution", [bottom], [name], convolution)
    net.layer(norm_names[0], "BatchNorm", [name], [name])
    return net.layer(norm_names[1], "Scale", [name], [name], "scale_param { bias_term: true }")


def bottleneck(net: NetText, block: str, bottom: str, width: int, stride: int, project: bool) -> str:
    """Write a bottleneck block: 1x1, 3x3, 1x1 and the shortcut, which a first block projects.

    The stride is on the first 1x1 convolution, as in the published Caffe nets.
    """

    def conv(branch: str, blob: str, shape: str) -> str:
        names = (f"bn{block}_{branch}", f"scale{block}_{branch}")
        return resnet_conv(net, f"res{block}_{branch}", blob, shape, names)

    shortcut = conv("branch1", bottom, geometry(4 * width, 1, stride, bias=False)) if project else bottom
    blob = conv("branch2a", bottom, geometry(width, 1, stride, bias=False))
    blob = conv("branch2b", net.relu(f"{blob}_relu", blob), geometry(width, 3, 1, 1, bias=False))
    blob = conv("branch2c", net.relu(f"{blob}_relu", blob), geometry(4 * width, 1, bias=False))
    total = net.layer(f"res{block}", "Eltwise", [shortcut, blob], [f"res{block}"])
    return net.relu(f"res{block}_relu", total)


def files() -> dict[Path, str]:
    """Return every generated file's path and text."""
    return {
        MODELS / "googlenet" / "train_val.prototxt": googlenet(training=True),
        MODELS / "googlenet" / "deploy.prototxt": googlenet(training=False),
        MODELS / "resnet50" / "train_val.prototxt": resnet50(training=True),
        MODELS / "resnet50" / "deploy.prototxt": resnet50(training=False),
    }


def main() -> int:
    """Write the files, or say which of them differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file differs")
    check = parser.parse_args().check
    differing = [path for path, text in files().items() if not path.is_file() or path.read_text() != text]
    for path in differing:
        if not check:
            path.write_text(files()[path])
        print(f"{path.relative_to(MODELS.parent)}: {'differs' if check else 'written'}")
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
