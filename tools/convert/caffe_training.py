"""The training step of a net of ours, to be compared with that of the model on the other side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from mgcaffe.engine.graph.rules import LayerSpec, filter_layers, make_state
from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.layers.input import Input
from mgcaffe.engine.net import Net
from mgcaffe.errors import EngineError
from mgcaffe.prototxt import LayerParameter, NetParameter
from mgcaffe.prototxt.files import net_source
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.training_step import CannotTrain, Scores, Take, places_of

# Two values become 1 and -1 whatever they are, so that gradients are left over from a subtraction; one becomes 0.
_LEAST_NORMALIZED = 3
_INDICATED = ("LSTM", "RNN", "LSTMUnit")


class CaffeTraining:
    """A deploy net, given a loss; see `training_step.TrainingSide`.

    Args:
        model: the net with its weights.
        as_module: the other side is a module that was written of it. Gradients of all parameters are computed, also
            where `lr_mult` is 0 or `propagate_down` false, of which it knows nothing, and HardSigmoid's numbers, the
            only fields that are no float32, are rounded as its are.
    """

    def __init__(self, model: Model, *, as_module: bool = False) -> None:
        self._model = model
        self._as_module = as_module

    def step(self, inputs: Mapping[str, np.ndarray], labels: np.ndarray, output: str, take: Take) -> float:
        """Compute the step in float64; gradients are those of the layers that learn.

        Raises:
            CannotTrain: the net cannot be trained as it is.
        """
        param, label = with_loss(self._model.source.param, labels.shape, output)
        if self._as_module:
            _unfreeze(param)
            _round_numbers(param)
        try:
            source = net_source(param, file=self._model.source.path)
            net = Net(param, sources=source, phase=TRAIN, dtype=torch.float64, seed=0, keep_blobs=False)
        except EngineError as error:
            raise CannotTrain(error.message) from None
        try:
            self._model.copy_weights(net)
            values = {**inputs, label: labels}
            for node in net.nodes:
                if isinstance(node.layer, Input):
                    node.layer.values = [torch.from_numpy(values[blob.name]).to(net.dtype) for blob in node.tops]
            net.clear_param_diffs()
            loss = net.forward_backward()
            places = places_of(net.layers)
            for layer in net.layers:
                for parameter in layer.parameters:
                    if parameter.wanted and parameter.owner is None:
                        take(places[id(parameter)], parameter.dense_diff().numpy())
            return loss
        finally:
            net.close()


def with_loss(net: NetParameter, shape: Sequence[int], output: str) -> tuple[NetParameter, str]:
    """Return what the net is in its TEST phase, with this loss alone and no dropout, and what the labels are called."""
    result = NetParameter()
    result.CopyFrom(net)
    del result.layer[:]
    converted = filter_layers([LayerSpec(layer) for layer in net.layer], make_state(TEST, base=net.state))
    result.layer.extend(spec.param for spec in converted)
    used = {layer.name for layer in net.layer} | {top for layer in net.layer for top in layer.top}
    label, loss = (_free(name, used) for name in ("label", "loss"))
    for layer in result.layer:
        del layer.include[:], layer.exclude[:]
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
        if layer.loss_weight or layer.type.endswith("Loss"):
            layer.loss_weight[:] = [0] * len(layer.top)
    result.layer.add(name=label, type="Input", top=[label]).input_param.shape.add(dim=shape)
    result.layer.add(name=loss, type="SoftmaxWithLoss", bottom=[output, label], top=[loss])
    return result, label


def _unfreeze(net: NetParameter) -> None:
    for layer in net.layer:
        if layer.type not in _INDICATED:  # whose indicators no gradient flows to, whatever they are made of
            del layer.propagate_down[:]
        if layer.type != "BatchNorm":
            for param in layer.param:
                param.lr_mult = param.lr_mult or 1


def _round_numbers(net: NetParameter) -> None:
    for layer in net.layer:
        if layer.type == "HardSigmoid":
            numbers = layer.hard_sigmoid_param
            numbers.alpha, numbers.beta = (float(np.float32(each)) for each in (numbers.alpha, numbers.beta))


def _free(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


def scores_of(net: Net, outputs: Sequence[str]) -> Scores:
    """Return the first output that a softmax loss can be of (or what a Softmax makes it of), where one can be compared.

    Args:
        net: in any phase.
        outputs: its outputs, in the order in which they are tried.

    Raises:
        CannotTrain: there is none, or no parameter is trained, or a layer draws at random, or BatchNorm has so few
            values to normalize by that rounding decides, or a state is read that Caffe does not differentiate.
    """
    if not any(parameter.lr_mult and not parameter.measured for parameter in net.parameters):
        raise CannotTrain("no parameter is trained")
    drawing = next((layer for layer in net.layers if _draws(layer.param)), None)
    if drawing is not None:
        raise CannotTrain(f"layer '{drawing.name}' draws pixels at random in training (STOCHASTIC)")
    for node in net.nodes:
        if node.layer.type != "BatchNorm" or node.layer.param.batch_norm_param.use_global_stats:
            continue
        shape = node.shapes[0]
        values = math.prod(shape) // shape[1] if len(shape) > 1 else shape[0]
        if values < _LEAST_NORMALIZED:
            raise CannotTrain(
                f"layer '{node.layer.name}' would normalize by {values} value(s) a channel; a batch of at least"
                f" {_LEAST_NORMALIZED} (--input_shape) allows it"
            )
    makers = {blob.name: node for node in net.nodes for blob in node.tops}
    states, learned = _exposed_states(net), _learned(net)
    for output in (each for each in outputs if each not in states and each in learned):
        # Behind probabilities near 0 and 1 gradients are rounding alone, so the loss is of what a Softmax reads.
        maker = makers.get(output)
        name = maker.layer.bottom_names[0] if maker is not None and maker.layer.type == "Softmax" else output
        shape = tuple(net.blobs[name].shape) if name in net.blobs else ()
        if len(shape) > 1 and shape[1] > 1:
            return name, shape
    raise CannotTrain("no output has a score for each of several classes (N x C ...) and depends on what is trained")


def _learned(net: Net) -> set[str]:
    """Return the blobs that depend on a parameter that is trained."""
    found: set[str] = set()
    for node in net.nodes:
        trains = any(parameter.lr_mult and not parameter.measured for parameter in node.layer.parameters)
        if trains or any(blob.name in found for blob in node.bottoms):
            found.update(blob.name for blob in node.tops)
    return found


def _draws(layer: LayerParameter) -> bool:
    """Return whether a layer pools as chance has it."""
    pooling, spp = layer.pooling_param, layer.spp_param
    return (layer.type == "Pooling" and pooling.pool == pooling.STOCHASTIC) or (
        layer.type == "SPP" and spp.pool == spp.STOCHASTIC
    )


def _exposed_states(net: Net) -> set[str]:
    """Return the final states of recurrent layers that are outputs: no gradient flows through these, as in Caffe.

    Raises:
        CannotTrain: another layer reads one.
    """
    exposing = [node for node in net.nodes if node.layer.param.recurrent_param.expose_hidden]
    states = {blob.name: node.layer.name for node in exposing for blob in node.tops[1:]}
    readers = (node.layer for node in net.nodes if node.layer.type != "Silence")
    read = next((name for layer in readers for name in layer.bottom_names if name in states), None)
    if read is not None:
        raise CannotTrain(f"no gradient flows through '{read}', the state of layer '{states[read]}', as in Caffe")
    return set(states)
