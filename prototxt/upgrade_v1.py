"""Turns the `layers` of the years before 2014's end into today's `layer` (Caffe: UpgradeV1LayerParameter).

Types were an enum, and rates, decays and shared names of the parameters were three lists beside one another.
The public model zoo (VGG, Network in Network, R-CNN) is in this form, text and weights alike.
"""

from __future__ import annotations

from mgcaffe.prototxt.messages import LayerParameter, V1LayerParameter, message_facts
from mgcaffe.prototxt.source import LayerSource, NetSource, Place

_TYPES = {
    "NONE": "",
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONTRASTIVE_LOSS": "ContrastiveLoss",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
    "HINGE_LOSS": "HingeLoss",
    "IM2COL": "Im2col",
    "IMAGE_DATA": "ImageData",
    "INFOGAIN_LOSS": "InfogainLoss",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MULTINOMIAL_LOGISTIC_LOSS": "MultinomialLogisticLoss",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SIGMOID_CROSS_ENTROPY_LOSS": "SigmoidCrossEntropyLoss",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
    "WINDOW_DATA": "WindowData",
    "BN": "BN",
    "INTERP": "Interp",
    "PRELU": "PReLU",
    "ROI_POOLING": "ROIPooling",
    "SMOOTH_L1_LOSS": "SmoothL1Loss",
}
"""The last five are those of forks."""
_SPEC_FIELDS = {
    "param": "name",
    "blob_share_mode": "share_mode",
    "blobs_lr": "lr_mult",
    "weight_decay": "decay_mult",
}
"""The lists of the old form, and the field of ParamSpec that each became."""


def upgrade_v1(net: NetSource) -> None:
    """Turn each of a net's `layers` into a `layer`, in place, weights included.

    `layers` of the oldest form have to be brought into this one first (`upgrade_v0`).
    """
    param = net.param
    for old in param.layers:
        _upgrade_layer(old, param.layer.add())
        old.ClearField("blobs")
    for source in net.layers:
        _move_places(source)
    param.ClearField("layers")


def _upgrade_layer(old: V1LayerParameter, new: LayerParameter) -> None:
    facts = message_facts(old)
    for descriptor, value in old.ListFields():
        name = descriptor.name
        if name in _SPEC_FIELDS:
            for index, item in enumerate(value):
                while len(new.param) <= index:
                    new.param.add()
                setattr(new.param[index], _SPEC_FIELDS[name], item)
        elif name == "type":
            new.type = _TYPES[V1LayerParameter.LayerType.Name(value)]
        elif facts.fields[name].repeated:
            getattr(new, name).MergeFrom(value)
        elif facts.fields[name].kind == "message":
            getattr(new, name).CopyFrom(value)
        else:
            setattr(new, name, value)


def _move_places(source: LayerSource) -> None:
    """Give each new `param` the places of the old lists' entries that it was made from."""
    fields = source.place.fields
    old = {name: fields.pop(name) for name in _SPEC_FIELDS if name in fields}
    specs = []
    for index in range(max(map(len, old.values()), default=0)):
        parts = {_SPEC_FIELDS[name]: [places[index]] for name, places in old.items() if index < len(places)}
        specs.append(Place(next(iter(parts.values()))[0].offset, parts))
    if specs:
        fields["param"] = specs
