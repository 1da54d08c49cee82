"""What the page about converting says beside the tables."""

INTRODUCTION = """
# Converting models

Made by `python -m docs.generate.converting --write` from the tables in `tools/convert/`; do not edit it by hand.

`engine convert IN... OUT` writes a model in another format, runs both on the same inputs, and gives the result its
name only if they compute the same. `engine compare A B` runs any two models and shows how far apart they are. From
Python, `mgcaffe.convert(IN, OUT)` does the same and returns the differences.

```sh
pip install 'mgcaffe[onnx]'         # onnx and onnxruntime, for everything about ONNX
pip install 'mgcaffe[safetensors]'  # for .safetensors, and Python files, which have their weights in one
engine convert deploy.prototxt bvlc_alexnet.caffemodel alexnet.onnx
engine compare deploy.prototxt bvlc_alexnet.caffemodel alexnet.onnx
engine convert alexnet.onnx again.prototxt                      # the net back; also writes again.caffemodel
engine convert deploy.prototxt bvlc_alexnet.caffemodel alexnet.py    # a module of PyTorch, and alexnet.safetensors
engine convert old.prototxt old.caffemodel new.caffemodel.h5    # today's form, and HDF5; also writes new.prototxt
engine convert bvlc_alexnet.caffemodel alexnet.safetensors      # the weights alone
```

Nothing is downloaded, and nothing is approximated: what the target cannot express is refused with the layer, the file
and the line (exit code 65), unless `--allow` names it.

## Formats
"""

FORMATS = """
Formats are told by the names of files. A weights file (`.caffemodel`, `.caffemodel.h5`, `.h5`, `.safetensors`, `.npz`,
or what is no text by its content) belongs to the net before it, so a model is one word or two. A net and weights may be
of any age and form that [formats.md](formats.md) names; what is written is today's form. A net needs Input layers:
convert the deploy net, not the training net. Where no weights are given, those in the net's definition are used, and
for layers without any those of their fillers (`--seed`); the output says so, as it names layers that found no weights
and weights that found no layer.
"""

WEIGHTS = """
## Weights alone

A file of weights without a net before it becomes one of another kind: `.caffemodel`, `.caffemodel.h5` (or `.h5`),
`.safetensors` or `.npz`, with the same arrays. With the net before it (`engine convert deploy.prototxt W.caffemodel
W.safetensors`) the weights are checked against it first; a `.caffemodel` or `.h5` is then written with its net beside
it. The other way, `deploy.prototxt W.safetensors` is a model wherever `deploy.prototxt W.caffemodel` is one.

- An array is called `layer/number`, as in Caffe's HDF5 files and in the ONNX files written here: `conv1/0` has the
  weights of `conv1`, `conv1/1` its bias. Names of other programs (`conv1.weight`) are not guessed, but listed and
  refused.
- Values are float32, or float64 where they were; float16, bfloat16 and whole numbers are read as float32. Nothing in an
  npz file is unpickled.
- The file is read back before it gets its name, safetensors by its own package, and every array has to be the same;
  `--tolerance` changes nothing in that. `engine compare W.caffemodel W.npz` compares two such files.
- A caffemodel that is made without a net has layers of names and blobs alone, which is all that Caffe and this engine
  read of it. Two kinds of weights need their net for that: blobs in the old form of four axes (1 x 1 x 1 x N may stand
  for N), and parameters that layers share, where the file has them once.
"""

PROOF = """
## The proof

Both sides run in the TEST phase on the same seeded inputs (`--seed`): normally distributed values, whole numbers
where a layer wants labels, row numbers or sequence indicators. Every value that has a name on both sides is compared:
the largest absolute difference, and the same relative to the largest value of that blob on either side. The table
shows the worst blobs first. Above the tolerance (`--tolerance`, 1e-4) the exit code is 65, and what was built stays
under another name, `net.unproven.onnx` for `net.onnx`, beside a file of the target's name that may have been there
before.

- `--json FILE` writes `{"largest_relative": ..., "blobs": [{"name", "largest_absolute", "largest_relative"}],
  "training_step": ...}`; `null` stands where a value is not finite on one side alone. (`engine compare` and
  `engine edit` write the first two.)
- `--no_check` leaves the proof out; the output says so, and so does an ONNX file in its description, and a
  Python file at its beginning.
- `--input_shape [BLOB=]N,C,H,W` gives an input another shape than the net's, in the model that is written as well.
- `engine compare` matches values by name and inputs by name, or else in their order; outputs whose names only one model
  has are compared in their order, or named in a note where one model has more of them. Values that two nets agree on by
  accident, such as zeros, prove nothing: give weights.
- Values that are not finite on both sides count as equal, which proves little, and so do blobs without values: notes
  name them.

### The training step

Where both formats can train (PyTorch to Caffe, and Caffe to a Python file), one training step is compared as well, in
float64: a softmax loss with seeded labels, of the first output of shape N x C ... or, where a Softmax makes that, of
what it reads; and the gradients of all parameters that are trained. Dropout is off, BatchNorm normalizes by the
batch, and numbers are those of the prototxt's fields, float32. The losses, and each gradient relative to the largest
one of its layer (or to a millionth of the largest of all, where a layer has none but rounding), have to agree to
1e-9, which `--tolerance` does not change; gradients are called `layer/number`, as in a caffemodel (where
layers have one name, the numbers of the second go on from those of the first), and one that only one side has (a
parameter that is frozen on the other) counts as zeros there. Otherwise the exit code is 65, and the files keep the name
`.unproven`.

A module that is written knows nothing of `lr_mult` and `propagate_down`, so from Caffe all gradients are compared. In
the file of `--json`:

```
"training_step": {"loss": [ours, theirs], "largest_relative": ...,
                  "gradients": [{"name", "largest_absolute", "largest_relative"}]}
```

`largest_relative` is that of the losses and of the gradients; `training_step` is `null` where no step was compared. A
note says why: nothing is trained, no output has scores of several classes, a layer cannot be differentiated or pools as
chance has it (STOCHASTIC), BatchNorm would normalize by fewer than three values a channel, whose gradients are
rounding alone (give a larger batch), or all gradients are (below 1e-12). There is none for ONNX files and programs of
torch.export that are written, which are not trained, and between Caffe's own forms, since the same code would train
both.

### Memory and time

Weights are not copied on their way: they are read layer by layer into the net, a module's parameters are taken from
where they are, and files are written from the net's memory. The two sides of the proof run one after the other.
AlexNet (244 MB of weights) takes 1.1 to 2.1 times its weights in memory (as a `.pt2`, 3.0), and a few seconds. The
training step needs about 4.3 times the weights, float64 for the values and for the gradients of one side; the other
side's gradients wait in a temporary file.
[benchmarks/results/convert_memory.md](../benchmarks/results/convert_memory.md) has the table.

## What can be allowed
"""

TO_ONNX = """
## From Caffe to ONNX

One file, opset {opset} (21 where a net has ROIPooling). Inputs are the tops of Input layers, with the net's own batch
size; outputs are the blobs that nothing reads. Values are called as the blobs; where a layer works in place, the
value that it writes over is `blob@layer`, after the layer that made it, so that each can be looked at and compared.
Weights are called `layer/number`, as in a caffemodel; BatchNorm's statistics are divided by its third blob, and a
parameter that layers share is there once. Splits that a net gets by itself, where a blob has several readers, leave
no trace.

The file also has the net itself, as text without weights, in its metadata (`mgcaffe.net`), and a digest of the graph
(`mgcaffe.structure`): [the way back](#from-onnx-to-caffe) goes by both.

The weights are written from where they lie in memory, and onnxruntime, which runs the model for the proof, maps the
file instead of reading it. A file of 2 GiB or more is refused.

Behind a Filter the number of items varies from run to run, and layers whose form needs to know it (Reshape, Slice and
others) are refused there. A label or row number that does not exist, which is an error here, is not looked for by the
model.

A field is *expressed* if the model computes what it says; *without effect* if it counts in training only, or does not
change the result; fillers are without effect, since the weights are there. Fields that say how to compute (`engine`
and the like) are without effect as well, and those of forks that our engine refuses are refused here too:
[layers.md](layers.md) lists both for each type. `phase`, `include`, `exclude`, `loss_weight`, `param` and
`propagate_down` of a layer are those of the TEST phase or of training, and leave nothing behind.
"""

FROM_ONNX = """
## From ONNX to Caffe

What becomes of the operators of any model is in [converting_onnx.md](converting_onnx.md). A file that was written here
becomes the very net that it was written from: the same layers, names, blobs and fields, with the weights that are in
the file now. The digest covers everything but the values of weights (nodes, attributes, names, inputs and outputs, and
constants such as a Reshape's sizes), so another program may read and write the file, put its arrays into files beside
it, add descriptions and shapes, and change weights. What differs:

- BatchNorm's statistics come back divided by their third blob, which is then 1.
- Statistics that the model has no use for (`use_global_stats: false`) are not in it; the output names such blobs.
- Of two layers with weights that have one name nothing tells which arrays are whose, so such a file has no net in it.

Where the graph was edited, a note says so, and its operators are read, as those of any other file. Then layers and
names are mostly the same still: all nets of `models/` have the layers that they had, in their order, but for
CIFAR10_full's LRN within channels, and a test holds this. What is not the same:

- What is written as several operators comes back as several layers, or is refused: LSTM, RNN, MVN, LRN within a
  channel, SPP, losses, Crop, Interp and others. InnerProduct with its Flatten, Scale with its bias and BatchNorm
  without a Scale are one layer again.
- Layers that leave no operator (Split, Silence) are gone, those that only pass a value on may be.
- Blobs are called after the layers that make them, in-place layers may have a blob of their own, and defaults are left
  out or written (`round_mode: FLOOR`).
"""

WITHOUT = """
### Types without an equivalent

These are refused:
"""

TO_PYTORCH = """
## From Caffe to PyTorch

A Python file has one nn.Module in plain style, and a `.safetensors` of the same name beside it the weights. It imports
torch and, to load them, safetensors; nothing of this project:

```python
from alexnet import AlexNet, load

net = load()  # in evaluation mode; load("other.safetensors") takes other weights
prob = net(images)  # any batch size
net = load().train()  # dropout drops, BatchNorm uses the batch
```

Layers with parameters are attributes, blobs are variables of `forward`, both called as in the prototxt (`conv2/3x3`
becomes `conv2_3x3`; Python's own words get an underscore). Each layer is one assignment, in the net's order; a layer
that works in place assigns its variable anew, and a comment names a layer that nothing on its line is called like. A
BatchNorm with a Scale that follows at once and in place are one nn.BatchNorm2d; layers with the same parameters are one
module. Where PyTorch has nothing with Caffe's meaning, the file defines a function or module of its own, and no others.
Sizes that the prototxt leaves open are read from the tensors (a Reshape's 0 is `x.shape[0]`), so that other batches,
and other images where Caffe takes them, need no new conversion.

In training, gradients are those of these formulas, with Caffe's divisors and limits in the losses; the share of each
batch in BatchNorm's statistics is 1 - moving_average_fraction, where Caffe's first batches count for more. A field is
*without effect* if it says something of Caffe's way to compute only; multipliers of learning rates and fillers leave
nothing behind.

A `.pt2` is the same module as a program of torch.export, with the net's own input shapes. The proof runs the Python
file's own statements one after the other and compares what each assigns, then the outputs of the whole module; of a
program, it reads the file again and compares the values of its nodes. Numbers are written as in the prototxt (0.1, not
the nearest float32), weights bit by bit.

A `.safetensors` file holds in its metadata, under `mgcaffe`, the names that blobs and parameters have in the net. The
written function `load` can be read again: `engine convert resnet50.py:load back.prototxt --input_shape 1,3,224,224`, as
far as [converting_pytorch.md](converting_pytorch.md) goes.
"""

WITHOUT_PYTORCH = """
### Types without an equivalent in PyTorch

These are refused:
"""
