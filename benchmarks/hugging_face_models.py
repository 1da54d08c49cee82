"""Converts models of Hugging Face's transformers and compares both sides: a table of docs/converting_pytorch.md.

    python benchmarks/hugging_face_models.py [--only NAME...] [--write]

The models are small: two layers of 32 values and the like, with random weights, and statistics of BatchNorm; nothing is
downloaded. Each is exported in evaluation mode, made a net, and both run on the same seeded input: ids of words, a
sound or an image. One training step is compared as well, in float64: loss and gradients of all parameters, dropout off,
BatchNorm by the batch. `--write` replaces the table in the page. Needs transformers (`pip install transformers`).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torchvision_models import DOCS, import_torchvision, randomize_statistics, write

from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.caffe_training import CaffeTraining
from mgcaffe.tools.convert.proof import compare
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_side import TorchSide
from mgcaffe.tools.convert.torch_training import TorchTraining
from mgcaffe.tools.convert.training_step import compare_steps

CLASSES, WORDS = 5, 100
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_TEXT = {**_SIZES, "vocab_size": WORDS, "max_position_embeddings": 32}
_FEW_WORDS = {**_TEXT, "vocab_size": 12, "pad_token_id": 1}
"""So that words are padding, which a mask leaves out."""
_LABELS = {"num_labels": CLASSES}
_PATCHES = {**_SIZES, **_LABELS, "image_size": 32, "patch_size": 8}
_STAGES = {**_LABELS, "hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}
_SOUND = {
    **_SIZES, **_LABELS, "conv_dim": [16, 16, 16], "conv_stride": [5, 2, 2], "conv_kernel": [10, 3, 2],
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
    "classifier_proj_size": 16,
}  # fmt: skip
_SMALL, _LARGE, _IDS, _WAVES = (2, 3, 32, 32), (2, 3, 64, 64), (2, 9), (2, 400)
# By the name in the table: the class without its kind, what it is for, the fields of its configuration, the input.
MODELS: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "BERT": ("Bert", "SequenceClassification", {**_TEXT, **_LABELS}, _IDS),
    "DistilBERT": ("DistilBert", "SequenceClassification", {
        "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "vocab_size": WORDS, "max_position_embeddings": 32,
        **_LABELS}, _IDS),
    "ALBERT": ("Albert", "SequenceClassification", {**_TEXT, **_LABELS, "embedding_size": 16}, _IDS),
    "ELECTRA": ("Electra", "SequenceClassification", {**_TEXT, **_LABELS, "embedding_size": 16}, _IDS),
    "RoBERTa": ("Roberta", "SequenceClassification", {**_FEW_WORDS, **_LABELS, "type_vocab_size": 1}, _IDS),
    "XLM-R": ("XLMRoberta", "SequenceClassification", {**_FEW_WORDS, **_LABELS, "type_vocab_size": 1}, _IDS),
    "CamemBERT": ("Camembert", "SequenceClassification", {**_FEW_WORDS, **_LABELS, "type_vocab_size": 1}, _IDS),
    "MPNet": ("MPNet", "SequenceClassification", {**_FEW_WORDS, **_LABELS}, _IDS),
    "GPT-2": ("GPT2", "LMHeadModel", {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "n_positions": 32, "use_cache": False,
        "bos_token_id": 0, "eos_token_id": 0}, _IDS),
    "GPT-2, padded": ("GPT2", "LMHeadModel", {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 12, "n_positions": 32, "use_cache": False,
        "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}, _IDS),
    "GPT-NeoX": ("GPTNeoX", "CausalLM", {**_TEXT, "use_cache": False}, _IDS),
    "Llama": ("Llama", "CausalLM", {**_TEXT, "use_cache": False}, _IDS),
    "Mistral": ("Mistral", "CausalLM", {**_TEXT, "num_key_value_heads": 2, "use_cache": False}, _IDS),
    "Qwen2": ("Qwen2", "CausalLM", {**_TEXT, "num_key_value_heads": 4, "use_cache": False}, _IDS),
    "T5's encoder": ("T5", "EncoderModel", {
        "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": WORDS}, _IDS),
    "wav2vec 2.0": ("Wav2Vec2", "SequenceClassification", {**_SOUND, "feat_extract_norm": "group"}, _WAVES),
    "wav2vec 2.0, large": ("Wav2Vec2", "SequenceClassification", {
        **_SOUND, "feat_extract_norm": "layer", "do_stable_layer_norm": True}, _WAVES),
    "HuBERT": ("Hubert", "SequenceClassification", _SOUND, _WAVES),
    "WavLM": ("WavLM", "SequenceClassification", _SOUND, _WAVES),
    "Data2VecAudio": ("Data2VecAudio", "SequenceClassification", _SOUND, _WAVES),
    "ViT": ("ViT", "ImageClassification", _PATCHES, _SMALL),
    "DeiT": ("DeiT", "ImageClassification", _PATCHES, _SMALL),
    "BEiT": ("Beit", "ImageClassification", _PATCHES, _SMALL),
    "CLIP's images": ("CLIPVision", "ModelWithProjection", {
        **_SIZES, "image_size": 32, "patch_size": 8, "projection_dim": CLASSES}, _SMALL),
    "Swin": ("Swin", "ImageClassification", {
        "image_size": 32, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, **_LABELS}, _SMALL),
    "Swin V2": ("Swinv2", "ImageClassification", {
        "image_size": 32, "embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4, **_LABELS}, _SMALL),
    "PVT": ("Pvt", "ImageClassification", {**_STAGES, "image_size": 64, "num_attention_heads": [1, 2, 2, 4]}, _LARGE),
    "LeViT": ("Levit", "ImageClassification", {
        "image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1],
        "key_dim": [8, 8, 8], **_LABELS}, _LARGE),
    "MobileViT": ("MobileViT", "ImageClassification", {"image_size": 64, **_LABELS}, _LARGE),
    "SegFormer": ("Segformer", "SemanticSegmentation", {
        **_STAGES, "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 16}, _LARGE),
    "PoolFormer": ("PoolFormer", "ImageClassification", _STAGES, _LARGE),
    "ConvNeXt V2": ("ConvNextV2", "ImageClassification", {**_STAGES, "image_size": 64}, _LARGE),
    "ResNet": ("ResNet", "ImageClassification", {**_STAGES, "embedding_size": 8}, _LARGE),
}  # fmt: skip
_UNNAMED = ("LMHeadModel", "EncoderModel", "ModelWithProjection")
"""What follows the class without `For`."""


class First(torch.nn.Module):
    """A model's first output, with the scores behind the batch; words are whole numbers, and one may be padding."""

    def __init__(self, model: torch.nn.Module, *, words: bool, padding: int | None) -> None:
        super().__init__()
        self.model, self.words, self.padding = model, words, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (N, classes) or (N, classes, ...)."""
        x = x.long() if self.words else x
        mask = {} if self.padding is None else {"attention_mask": x.ne(self.padding)}
        y: torch.Tensor = self.model(x, return_dict=False, **mask)[0]
        return y.transpose(1, 2) if y.dim() == 3 else y


def seeded_model(name: str) -> tuple[torch.nn.Module, tuple[int, ...]]:
    """Return a small model with random weights, the same every time, and the shape of its input."""
    transformers = importlib.import_module("transformers")
    kind, purpose, fields, shape = MODELS[name]
    torch.manual_seed(0)
    configuration = getattr(transformers, f"{kind}Config")(**fields)
    model = getattr(transformers, f"{kind}{purpose}" if purpose in _UNNAMED else f"{kind}For{purpose}")(configuration)
    randomize_statistics(model)
    return First(model, words=shape is _IDS, padding=fields.get("pad_token_id")).eval(), shape


def row(name: str) -> str:
    """Return a line of the table."""
    module, shape = seeded_model(name)
    program = export_module(module, shape, name)
    model = import_program(program, name="net", file=name)
    side = TorchSide(program)
    net = model.build()
    inputs = fitting_inputs(net)
    expected = side.run({model.names[blob]: values for blob, values in inputs.items()})
    found = compare(CaffeSide(net).run(inputs), expected, model.names)
    output = next(each for each in found if model.names[each.name] == side.outputs[0])
    scores = tuple(net.blobs[output.name].shape)
    step = compare_steps(
        lambda: TorchTraining(program, model), lambda: CaffeTraining(model), inputs, (output.name, scores)
    )
    cells = [name, len(model.source.param.layer), f"{output.largest_relative:.1e}", f"{found[0].largest_relative:.1e}"]
    cells += [f"{step.loss_apart:.1e}", f"{step.gradients[0].largest_relative:.1e}", len(step.gradients)]
    return f"| {' | '.join(map(str, cells))} |"


def rows(names: list[str]) -> Iterator[str]:
    """Give the lines of the table."""
    yield "| model | layers | output | any blob | loss | gradients (largest) | parameters |"
    yield "|---|---|---|---|---|---|---|"
    for name in names:
        made = row(name)
        print(made, flush=True)
        yield made
        gc.collect()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="NAME", help="these models alone")
    parser.add_argument("--write", action="store_true", help="put the table into the page in docs/")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if importlib.util.find_spec("torchvision"):
        import_torchvision()  # which transformers looks for
    table = "\n".join(rows(options.only or list(MODELS)))
    if options.write:
        write(DOCS / "converting_pytorch.md", {"hugging face": table})


if __name__ == "__main__":
    main()
