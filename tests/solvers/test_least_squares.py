"""Every update rule on least squares: against arithmetic done here in numpy, shared, accumulated, stopped and resumed.

The net and the list of combinations follow the semantics of Caffe's solver tests: a linear model under a squared
distance, rates, momentum, weight decay, parameters with shared names, iter_size, snapshots.
"""

import h5py
import numpy as np
import pytest
import torch

from tests.support.solverkit import data_layer, make_solver, weights_of, write_data

pytestmark = pytest.mark.slow

BATCH = 4

# What each type is tested with; the fields that it cannot have are left away.
TYPES = {
    "SGD": {"momentum": 0.5},
    "Nesterov": {"momentum": 0.5},
    "AdaGrad": {"delta": 1e-4},
    "RMSProp": {"rms_decay": 0.95, "delta": 1e-4},
    "AdaDelta": {"momentum": 0.95, "delta": 1e-4},
    "Adam": {"momentum": 0.9, "momentum2": 0.99, "delta": 1e-4},
}
EVERYTHING = {"base_lr": 0.01, "weight_decay": 0.5}


def fields_of(kind, **more):
    values = {**TYPES[kind], **more}
    return f'type: "{kind}" lr_policy: "fixed" ' + " ".join(f"{name}: {value}" for name, value in values.items())


def ip(name, bottom, parameter="", outputs=1):
    """Parameter names, if given, are shared by all layers that give them."""
    names = [f'name: "{parameter}_{kind}"' if parameter else "" for kind in ("weight", "bias")]
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"'
        f" param {{ {names[0]} }} param {{ {names[1]} lr_mult: 2 decay_mult: 0 }} inner_product_param {{"
        f' num_output: {outputs} weight_filler {{ type: "gaussian" }} bias_filler {{ type: "gaussian" }} }} }}\n'
    )


LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "label" top: "loss" }\n'
PLAIN = ip("y", "data") + LOSS
# Both uses see half of the input, so that one parameter gets two different gradients.
SHARED = (
    'layer { name: "slice" type: "Slice" bottom: "data" top: "a" top: "b" }\n'
    + ip("ya", "a", "shared")
    + ip("yb", "b", "shared")
    + 'layer { name: "y" type: "Eltwise" bottom: "ya" bottom: "yb" top: "y" }\n'
    + LOSS
)


def net(folder, body, batch=BATCH):
    return data_layer(write_data(folder), batch) + body


class Model:
    """The linear model and its update, one parameter at a time."""

    def __init__(self, folder, solver, kind, shared):
        with h5py.File(folder / "data.h5") as file:
            self.data, self.label = (file[name][:].astype(np.float64) for name in ("data", "label"))
        self.param, self.kind, self.shared = solver.param, kind, shared
        self.values = [parameter.data.numpy().reshape(-1).copy() for parameter in solver.net.parameters]
        self.history = [[np.zeros_like(value)] * 2 for value in self.values]

    def gradients(self, first, batch):
        """Those of weight and bias for a batch from record `first` on."""
        records = [(first + index) % len(self.label) for index in range(batch)]
        x, (w, b) = self.data[records], self.values
        uses = [x[:, :2], x[:, 2:]] if self.shared else [x]
        error = sum(part @ w + b for part in uses) - self.label[records]
        return [sum(part.T @ error for part in uses) / batch, np.array([len(uses) * error.sum() / batch])]

    def train(self, iterations, batch, iter_size=1):
        position = 0
        for iteration in range(iterations):
            total = [np.zeros_like(value) for value in self.values]
            for _ in range(iter_size):
                for sum_, part in zip(total, self.gradients(position, batch), strict=True):
                    sum_ += part / iter_size
                position += batch
            decay = self.param.weight_decay
            self.step(0, total[0] + decay * self.values[0], self.param.base_lr, iteration)
            self.step(1, total[1], 2 * self.param.base_lr, iteration)

    def step(self, index, g, rate, iteration):
        mu, delta = self.param.momentum, self.param.delta
        first, second = self.history[index]
        if self.kind == "SGD":
            first = step = mu * first + rate * g
        elif self.kind == "Nesterov":
            step, first = (1 + mu) * (mu * first + rate * g) - mu * first, mu * first + rate * g
        elif self.kind == "AdaGrad":
            first = first + g**2
            step = rate * g / (np.sqrt(first) + delta)
        elif self.kind == "RMSProp":
            first = self.param.rms_decay * first + (1 - self.param.rms_decay) * g**2
            step = rate * g / (np.sqrt(first) + delta)
        elif self.kind == "AdaDelta":
            first = mu * first + (1 - mu) * g**2
            move = g * np.sqrt((second + delta) / (first + delta))
            second = mu * second + (1 - mu) * move**2
            step = rate * move
        else:
            beta = self.param.momentum2
            first, second = mu * first + (1 - mu) * g, beta * second + (1 - beta) * g**2
            correction = np.sqrt(1 - beta ** (iteration + 1)) / (1 - mu ** (iteration + 1))
            step = rate * correction * first / (np.sqrt(second) + delta)
        self.history[index] = [first, second]
        self.values[index] = self.values[index] - step


def check(folder, kind, fields, *, iterations, shared=False, iter_size=1):
    body = SHARED if shared else PLAIN
    with make_solver(net(folder, body), fields_of(kind, iter_size=iter_size, **fields), folder) as solver:
        model = Model(folder, solver, kind, shared)
        model.train(iterations, BATCH, iter_size)
        solver.step(iterations)
        assert len(solver.net.parameters) == 2
        for parameter, expected in zip(solver.net.parameters, model.values, strict=True):
            np.testing.assert_allclose(parameter.data.numpy().reshape(-1), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    "fields",
    [
        {"base_lr": 1.0, "weight_decay": 0},
        {"base_lr": 0.01, "weight_decay": 0},
        {"base_lr": 1.0, "weight_decay": 0.5},
        EVERYTHING,
    ],
    ids=["plain", "a rate of one hundredth", "weight decay", "everything"],
)
@pytest.mark.parametrize("iterations", [1, 4])
@pytest.mark.parametrize("kind", TYPES)
def test_an_update_is_the_formula(tmp_path, kind, fields, iterations):
    check(tmp_path, kind, fields, iterations=iterations)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaDelta", "Adam"])
def test_the_momentum_matters_as_the_formula_says(tmp_path, kind, momentum):
    check(tmp_path, kind, {"base_lr": 0.01, "weight_decay": 0, "momentum": momentum}, iterations=4)


@pytest.mark.parametrize("rms_decay", [0.0, 0.5, 0.99])
def test_the_decay_of_mean_squares_matters_as_the_formula_says(tmp_path, rms_decay):
    check(tmp_path, "RMSProp", {**EVERYTHING, "rms_decay": rms_decay}, iterations=4)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("iter_size", [1, 3])
@pytest.mark.parametrize("kind", TYPES)
def test_shared_parameters_and_accumulated_gradients_follow_the_formula(tmp_path, kind, shared, iter_size):
    check(tmp_path, kind, EVERYTHING, iterations=4, shared=shared, iter_size=iter_size)


@pytest.mark.parametrize("body", [PLAIN, SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize("kind", TYPES)
def test_accumulated_batches_equal_one_large_batch(tmp_path, kind, body):
    results = []
    for batch, iter_size in ((6, 1), (2, 3)):
        fields = fields_of(kind, iter_size=iter_size, **EVERYTHING)
        with make_solver(net(tmp_path, body, batch), fields, tmp_path) as solver:
            solver.step(5)
            results.append(weights_of(solver))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("body", [PLAIN, SHARED], ids=["plain", "shared"])
@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("kind", TYPES)
def test_a_snapshot_goes_on_to_the_same_bits(tmp_path, kind, form, body):
    text, fields = net(tmp_path, body), fields_of(kind, snapshot=3, snapshot_format=form, **EVERYTHING)
    with make_solver(text, fields, tmp_path, dtype=torch.float32) as solver:
        solver.step(6)
        weights, histories = weights_of(solver), [history.clone() for history in solver._updater.histories]
    suffix = ".h5" if form == "HDF5" else ""
    with make_solver(text, fields, tmp_path, dtype=torch.float32) as solver:
        solver.restore(f"{tmp_path}/net_iter_3.solverstate{suffix}")
        solver.step(3)
        assert torch.equal(weights_of(solver), weights)
        assert all(torch.equal(*pair) for pair in zip(solver._updater.histories, histories, strict=True))
