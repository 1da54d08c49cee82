"""Writes the nets for click-through rates: models/dlrm_kaggle, models/dlrm_small, models/deepfm, train_val and deploy.

    python models/generate_ctr.py                         # writes the six files anew
    python models/generate_ctr.py --check                 # writes nothing; fails if a file differs
    python models/generate_ctr.py --most_rows 10000000    # writes them with larger tables

Each net is described once. Its deploy form is the same description without data, loss, scores and fillers. The files
are committed, since people read prototxts and not this.
"""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

MODELS = Path(__file__).resolve().parent
WIDTH = 110
INTEGERS, FEATURES = 13, 26
DEPLOY_BATCH = 128

KAGGLE_VALUES = (
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
)  # fmt: skip
"""How many values each feature has in Criteo's Kaggle data, a missing one included, as DLRM counts them."""

MOST_ROWS = 100_000
"""What the tables of the nets for the Kaggle data are capped at."""

SMALL_ROWS, SMALL_LENGTH = 4096, 8


class CtrNet:
    """The text of a net, written layer by layer.

    Args:
        header: the comment and name that come first.
        training: whether data, loss, scores and fillers are part of it.

    Attributes:
        ids: the blobs with the ids of each feature.
        starts_as_dlrm: whether inner products start as DLRM's do, W ~ N(0, 2 / (m + n)) and b ~ N(0, 1 / m).
    """

    def __init__(self, header: str, training: bool) -> None:
        self.training = training
        self.starts_as_dlrm = False
        self.text = header + "\n"
        self.ids = [f"C{number}" for number in range(1, FEATURES + 1)]

    def layer(self, name: str, kind: str, bottoms: Sequence[str], tops: Sequence[str], *fields: str) -> str:
        """Write one layer; return its first top."""
        blobs = [f'bottom:~"{blob}"' for blob in bottoms] + [f'top:~"{blob}"' for blob in tops]
        head = [f'name:~"{name}"', f'type:~"{kind}"', *blobs]
        lines = wrapped(head, "  ") + [f"  {line}" for field in fields if field for line in field.splitlines()]
        single = f"layer {{{'  '.join(['', *(line.strip() for line in lines)])[1:]} }}"
        whole = single if len(single) <= WIDTH else "\n".join(["layer {", *lines, "}"])
        self.text += whole + "\n"
        return tops[0]

    def blank(self) -> None:
        """Separate two parts of the net."""
        self.text += "\n"

    def data(self, sources: tuple[str, str], batches: tuple[int, int], rows: Sequence[int]) -> None:
        """Write the sources for both phases, or the inputs of a deployed net.

        Args:
            sources: files for training and testing.
            batches: their batch sizes.
            rows: of the table of each feature.
        """
        sizes = "\n".join(wrapped([f"table_size:~{size}" for size in rows], "    "))
        if len(set(rows)) == 1:
            sizes = f"    table_size: {rows[0]}"
        if not self.training:
            shapes = [f"shape~{{~dim:~{DEPLOY_BATCH}~~dim:~{size}~}}" for size in (INTEGERS, *[1] * FEATURES)]
            fields = "\n".join(["input_param {", *wrapped(shapes, "  "), "}"])
            self.layer("data", "Input", [], ["dense", *self.ids], fields)
            return
        for phase, source, batch in zip(("TRAIN", "TEST"), sources, batches, strict=True):
            fields = f'criteo_data_param {{\n  source: "{source}"  batch_size: {batch}\n{sizes[2:]}\n}}'
            fields = fields.replace("\n    ", "\n  ")
            self.layer(
                "data", "CriteoData", [], ["label", "dense", *self.ids], f"include {{ phase: {phase} }}", fields
            )  # fmt: skip

    def product(self, name: str, bottom: str, inputs: int, outputs: int) -> str:
        """Write an inner product."""
        weight, bias = 'type: "xavier"', 'type: "constant"'
        if self.starts_as_dlrm:
            weight = f'type: "gaussian"  std: {math.sqrt(2 / (inputs + outputs)):.6g}'
            bias = f'type: "gaussian"  std: {math.sqrt(1 / outputs):.6g}'
        start = f"\n  weight_filler {{ {weight} }}  bias_filler {{ {bias} }}\n" if self.training else " "
        shape = f"\n  num_output: {outputs}" if self.training else f" num_output: {outputs}"
        fields = f"inner_product_param {{{shape}{start}}}"
        return self.layer(name, "InnerProduct", [bottom], [name], fields)

    def mlp(self, name: str, bottom: str, sizes: Sequence[int], *, last_is_linear: bool = False) -> str:
        """Write inner products with ReLUs: sizes[0] inputs, then so many outputs."""
        for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes), 1):
            bottom = self.product(f"{name}{number}", bottom, inputs, outputs)
            if number < len(sizes) - 1 or not last_is_linear:
                self.layer(f"{name}{number}_relu", "ReLU", [bottom], [bottom])
        return bottom

    def tables(self, rows: Sequence[int], length: int) -> list[str]:
        """Write an embedding bag for each feature; they start U(-1 / sqrt(rows), 1 / sqrt(rows)) by themselves."""
        return [
            self.layer(
                f"emb{number}", "EmbeddingBag", [ids], [f"emb{number}"],
                f"embedding_bag_param {{ input_dim: {size}  num_output: {length} }}",
            )
            for number, (ids, size) in enumerate(zip(self.ids, rows, strict=True), 1)
        ]  # fmt: skip

    def end(self, logit: str) -> str:
        """Write the loss and the scores of a test, or the probability; return the text."""
        self.blank()
        if not self.training:
            self.layer("prob", "Sigmoid", [logit], ["prob"])
            return self.text
        self.layer("loss", "SigmoidCrossEntropyLoss", [logit, "label"], ["loss"])
        for name, kind in (("normalized_entropy", "NormalizedEntropy"), ("auc", "AUC")):
            self.layer(name, kind, [logit, "label"], [name], "include { phase: TEST }")
        return self.text


def wrapped(words: Sequence[str], indent: str) -> list[str]:
    """Return lines of at most WIDTH characters; `~` in a word stands for a space at which no line ends."""
    lines = textwrap.wrap("  ".join(words), WIDTH, initial_indent=indent, subsequent_indent=indent,
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return [line.replace("~", " ") for line in lines]


def header(name: str, training: bool, after: str) -> str:
    """Return what a net begins with."""
    use = "training" if training else "inference"
    return f'# {name} for {use}. Written by models/generate_ctr.py: change that, then run it.\n# After {after}\n' \
           f'name: "{name}"\n'  # fmt: skip


DLRM = 'Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019.'
DEEPFM = 'Guo et al., "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction", 2017.'
CRITEO = ("examples/criteo/train.txt", "examples/criteo/test.txt")
GENERATED = ("build/ctr/generated_train.tsv", "build/ctr/generated_test.tsv")


def dlrm(net: CtrNet, rows: Sequence[int], bottom: Sequence[int], top: Sequence[int]) -> str:
    """Write DLRM: an MLP over the integers, a table a feature, all pairs of their vectors, an MLP over those."""
    net.starts_as_dlrm = True
    net.blank()
    x = net.mlp("bottom", "dense", (INTEGERS, *bottom))
    net.blank()
    vectors = net.tables(rows, bottom[-1])
    net.blank()
    pairs = net.layer("interaction", "DotInteraction", [x, *vectors], ["interaction"])
    width = bottom[-1] + FEATURES * (FEATURES + 1) // 2
    return net.end(net.mlp("top", pairs, (width, *top), last_is_linear=True))


def dlrm_kaggle(training: bool, most_rows: int = MOST_ROWS) -> str:
    """DLRM as its authors train it on Criteo's Kaggle data, with smaller tables."""
    net = CtrNet(header("DLRM, Kaggle", training, DLRM), training)
    rows = capped(most_rows)
    net.data(CRITEO, (128, 2048), rows)
    return dlrm(net, rows, (512, 256, 64, 16), (512, 256, 1))


def dlrm_small(training: bool) -> str:
    """DLRM of a size that trains in seconds, on generated data."""
    net = CtrNet(header("DLRM, small", training, DLRM), training)
    rows = (SMALL_ROWS,) * FEATURES
    net.data(GENERATED, (128, 1000), rows)
    return dlrm(net, rows, (64, SMALL_LENGTH), (64, 1))


def deepfm(training: bool, most_rows: int = MOST_ROWS) -> str:
    """DeepFM: a factorization machine and an MLP over the same tables.

    A row of a table is the value's first-order weight and, behind it, its vector.
    """
    length = 10
    net = CtrNet(header("DeepFM", training, DEEPFM), training)
    rows = capped(most_rows)
    net.data(CRITEO, (128, 2048), rows)
    net.blank()
    bags = net.tables(rows, 1 + length)
    net.blank()
    net.layer("bags", "Concat", bags, ["bags"])
    features = f"reshape_param {{ shape {{ dim: 0  dim: {FEATURES}  dim: {1 + length} }} }}"
    net.layer("features", "Reshape", ["bags"], ["features"], features)
    net.layer(
        "weights_vectors", "Slice", ["features"], ["weights", "vectors"], "slice_param { axis: 2  slice_point: 1 }"
    )

    net.blank()
    net.text += "# The factorization machine: the sum of weights, and of the dot products of all pairs of vectors as\n"
    net.text += "# (square of the sum - sum of the squares) / 2.\n"
    first = reduction(net, "first_order", "weights", "axis: 1")
    net.layer("by_place", "Permute", ["vectors"], ["by_place"], "permute_param { order: 0  order: 2  order: 1 }")
    total = reduction(net, "sum", "by_place", "axis: 2")
    square_of_sum = reduction(net, "square_of_sum", total, "operation: SUMSQ  axis: 1  coeff: 0.5")
    sum_of_squares = reduction(net, "sum_of_squares", "vectors", "operation: SUMSQ  axis: 1  coeff: -0.5")
    net.layer("machine", "Eltwise", [first, square_of_sum, sum_of_squares], ["machine"])
    column = "reshape_param { shape { dim: 0  dim: 1 } }"
    machine = net.layer("machine_column", "Reshape", ["machine"], ["machine_column"], column)
    linear = net.product("linear", "dense", INTEGERS, 1)

    net.blank()
    net.layer("flat", "Flatten", ["vectors"], ["flat"])
    net.layer("deep_input", "Concat", ["flat", "dense"], ["deep_input"])
    width = FEATURES * length + INTEGERS
    deep = net.mlp("deep", "deep_input", (width, 400, 400, 400, 1), last_is_linear=True)
    net.blank()
    return net.end(net.layer("logit", "Eltwise", [linear, machine, deep], ["logit"]))


def reduction(net: CtrNet, name: str, bottom: str, fields: str) -> str:
    """Write a sum over the last axes."""
    return net.layer(name, "Reduction", [bottom], [name], f"reduction_param {{ {fields} }}")


def capped(most_rows: int) -> list[int]:
    """Return the rows of each table for the Kaggle data."""
    return [min(values, most_rows) for values in KAGGLE_VALUES]


def files(most_rows: int = MOST_ROWS) -> dict[Path, str]:
    """Return every generated file's path and text."""
    found = {}
    for training, name in ((True, "train_val"), (False, "deploy")):
        found[MODELS / "dlrm_kaggle" / f"{name}.prototxt"] = dlrm_kaggle(training, most_rows)
        found[MODELS / "dlrm_small" / f"{name}.prototxt"] = dlrm_small(training)
        found[MODELS / "deepfm" / f"{name}.prototxt"] = deepfm(training, most_rows)
    return found


def main() -> int:
    """Write the files, or say which of them differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file differs")
    parser.add_argument("--most_rows", type=int, default=MOST_ROWS, help=f"cap of a table's rows ({MOST_ROWS})")
    options = parser.parse_args()
    wanted = files(options.most_rows)
    differing = [path for path, text in wanted.items() if not path.is_file() or path.read_text() != text]
    for path in differing:
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        print(f"{path.relative_to(MODELS.parent)}: {'differs' if options.check else 'written'}")
    return 1 if options.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
