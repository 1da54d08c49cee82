"""The factor on the loss in fp16: it changes no update that is made, adapts itself, and is part of snapshots."""

import h5py
import pytest
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.engine.kernels.precision import BF16, FP16
from mgcaffe.errors import NotFiniteError
from mgcaffe.solvers import loss_scale
from mgcaffe.solvers.events import Displayed, LossScaleChanged
from mgcaffe.solvers.events.statistics import BlobStatistics, NetStatistics
from mgcaffe.solvers.loss_scale import FIRST, LEAST, MOST, LossScale, LossScaleState
from tests.support.solverkit import LEAST_SQUARES, Recorder, data_layer, make_solver, weights_of, write_data

# Its last product is that of 'ip', so the gradients of 'conv' are made of operands in 16 bits.
NET = "".join(
    f"layer {{ {text} }}\n"
    for text in (
        "name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' "
        "convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: 'gaussian' std: 0.2 } }",
        "name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm'",
        "name: 'ip' type: 'InnerProduct' bottom: 'norm' top: 'ip' "
        "inner_product_param { num_output: 1 weight_filler { type: 'gaussian' std: 0.1 } }",
        "name: 'loss' type: 'EuclideanLoss' bottom: 'ip' bottom: 'label' top: 'loss'",
    )
)


def write_images(folder, *, large=()):
    """Write 16 small images, some of which have large labels, and so large gradients."""
    generator = torch.Generator().manual_seed(3)
    labels = torch.randn(16, generator=generator)
    labels[list(large)] = 3e4
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"] = torch.randn(16, 2, 5, 5, generator=generator).numpy()
        file["label"] = labels.numpy()
    listing = folder / "data.txt"
    listing.write_text(f"{folder / 'data.h5'}\n")
    return listing


def in_fp16(folder, fields="", *, large=(), recorder=None, communicator=None, batch=4):
    size = 1 if communicator is None else communicator.size
    listing = write_images(folder, large=large) if size == 1 else folder / "data.txt"
    fields = f'precision: "fp16" base_lr: 1e-4 lr_policy: "fixed" {fields}'
    return make_solver(
        data_layer(listing, batch // size) + NET, fields, folder,
        recorder=recorder, communicator=communicator, dtype=torch.float32,
    )  # fmt: skip


def test_the_factor_is_halved_doubled_and_kept_in_bounds():
    scale = LossScale(FP16)
    assert scale.value == FIRST
    assert scale.overflowed() and scale.value == FIRST / 2
    for _ in range(loss_scale.INTERVAL - 1):
        assert not scale.updated()
    assert scale.updated() and scale.state == LossScaleState(FIRST, 0)
    scale.updated()
    assert scale.overflowed() and scale.state == LossScaleState(FIRST / 2, 0)
    scale.state = LossScaleState(LEAST, 5)
    assert not scale.overflowed() and scale.value == LEAST
    scale.state = LossScaleState(MOST, loss_scale.INTERVAL - 1)
    assert not scale.updated() and scale.state == LossScaleState(MOST, 0)


def test_without_fp16_it_is_one():
    scale = LossScale(BF16)
    assert not scale.updated() and not scale.overflowed()
    assert scale.value == 1 and scale.state is None


def test_what_a_snapshot_holds_of_it_is_checked():
    state = LossScaleState(2.0**10, 17)
    assert LossScaleState.decode(state.encode()) == state
    for damaged in (b"", b"{}", b'{"scale": 3.0, "updates": 1}', b'{"scale": 0.5, "updates": 1}',
                    b'{"scale": 4.0, "updates": -1}', b'{"scale": 4.0, "updates": 2000}'):  # fmt: skip
        with pytest.raises(ValueError, match=r"damaged|updates|scale"):
            LossScaleState.decode(damaged)


def train_scaled(folder, fields, scale, size, dtype=torch.float32):
    """Train some steps with a factor on the loss; return losses as displayed and the weights."""

    def rank(communicator):
        recorder = Recorder()
        text = data_layer(folder / "data.txt", 4 // size) + LEAST_SQUARES
        given = {"recorder": recorder, "communicator": communicator if size > 1 else None, "dtype": dtype}
        with make_solver(text, f"display: 1 {fields}", folder, **given) as solver:
            if scale != 1:
                solver._loss_scale.state = LossScaleState(scale)
            solver.step(5)
            return recorder.shown, weights_of(solver)

    return run_ranks(size, rank)[0]


@pytest.mark.parametrize("scale", [2.0**15, 2.0])
@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ("momentum: 0.9 weight_decay: 0.01", 1),
        ("momentum: 0.9 iter_size: 3", 1),
        ("momentum: 0.9 clip_gradients: 0.05", 1),
        ("clip_gradients: 0.05 snapshot_diff: true", 2),
        ("type: 'Adam' momentum: 0.9 momentum2: 0.99 delta: 1e-8 iter_size: 2", 2),
        ("momentum: 0.9 larc: true larc_eta: 0.01 weight_decay: 0.01", 1),
        ("momentum: 0.9 comm_param { schedule: WFBP overlap_forward: true }", 2),
        ("weight_decay: 0.1 regularization_type: 'L1'", 2),
    ],
)
def test_a_power_of_two_changes_no_bit_of_losses_and_weights(tmp_path, fields, size, scale):
    write_data(tmp_path)
    shown, weights = train_scaled(tmp_path, fields, 1, size)
    scaled_shown, scaled_weights = train_scaled(tmp_path, fields, scale, size)
    assert scaled_shown == shown
    assert torch.equal(scaled_weights, weights)


@pytest.mark.parametrize("frozen", [False, True])
def test_gradients_are_shown_and_handed_out_without_it(tmp_path, frozen):
    """Those of frozen parameters too, where they count for clipping."""
    found, net, fields = [], LEAST_SQUARES, "debug_info: true display: 1 momentum: 0.9"
    if frozen:
        net, fields = (
            f"{net.replace('lr_mult: 1', 'lr_mult: 0')} force_backward: true",
            f"{fields} clip_gradients: 0.05",
        )
    for scale in (1.0, 2.0**12):
        recorder, seen = Recorder(), []
        text = data_layer(write_data(tmp_path), 4) + net
        with make_solver(text, fields, tmp_path, recorder=recorder, dtype=torch.float32) as solver:
            if scale != 1:
                solver._loss_scale.state = LossScaleState(scale)
            arena = solver.net.arena
            solver.add_callback(lambda: None, lambda arena=arena, seen=seen: seen.append(arena.diff.clone()))
            solver.step(2)
            # Gradients that somebody else has computed contain no factor.
            solver.net.clear_param_diffs()
            solver.net.forward_backward()
            solver.apply_update()
            weights = weights_of(solver)
        found.append((seen, recorder.of(BlobStatistics), recorder.of(NetStatistics), weights))
    (seen, blobs, nets, weights), (scaled_seen, scaled_blobs, scaled_nets, scaled_weights) = found
    assert len(seen) == 2 and all(map(torch.equal, seen, scaled_seen))
    assert scaled_blobs == blobs and scaled_nets == nets and nets
    assert torch.equal(weights, scaled_weights)


def test_an_overflow_on_one_rank_is_passed_over_by_all(tmp_path):
    write_images(tmp_path, large=[5, 7])  # what rank 1 reads in iteration 1

    def rank(communicator):
        recorder = Recorder()
        with in_fp16(tmp_path, "momentum: 0.9 display: 1", recorder=recorder, communicator=communicator) as solver:
            solver._loss_scale.state = LossScaleState(16.0)
            solver.step(1)
            before = weights_of(solver)  # with BatchNorm's statistics
            solver.step(1)
            assert torch.equal(weights_of(solver), before)
            solver.step(2)
            assert not torch.equal(weights_of(solver), before)
            trained = torch.cat([each.data.flatten() for each in solver.net.parameters if not each.measured])
            return recorder, trained, solver._loss_scale.state, solver.net.data_layers[0].position()

    (recorder, weights, state, position), (other, others, *_) = run_ranks(2, rank)
    changes = recorder.of(LossScaleChanged)
    assert changes == [LossScaleChanged(1, 8.0, is_skipped=True)] == other.of(LossScaleChanged)
    assert changes[0].text == (
        "Iteration 1: gradients overflow in fp16, so the weights stay as they are, and the loss scale is 8"
    )
    assert torch.equal(weights, others)
    assert state == LossScaleState(8.0, 2)
    assert position == 16  # the batch is not read again
    assert [event.iteration for event in recorder.of(Displayed)] == [0, 1, 2, 3]


def test_a_factor_that_cannot_be_halved_ends_the_run(tmp_path):
    with in_fp16(tmp_path, large=range(16)) as solver:
        solver._loss_scale.state = LossScaleState(LEAST)
        for parameter in solver.net.layers[-2].parameters:
            parameter.data.mul_(1e4)
        with pytest.raises(NotFiniteError) as caught:
            solver.step(1)
    assert "numbers above 65504 are infinite" in caught.value.hint
    assert "the gradient of" in str(caught.value)


def test_it_is_doubled_after_many_updates_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(loss_scale, "INTERVAL", 2)
    recorder = Recorder()
    with in_fp16(tmp_path, recorder=recorder) as solver:
        solver._loss_scale.state = LossScaleState(4.0)
        solver.step(5)
    assert [(event.iteration, event.scale) for event in recorder.of(LossScaleChanged)] == [(1, 8.0), (3, 16.0)]
    assert recorder.of(LossScaleChanged)[0].text == "Iteration 1: from now on the loss scale is 8"


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_a_run_that_is_resumed_has_the_factor_of_one_that_never_stopped(tmp_path, form):
    fields = f"momentum: 0.9 snapshot_format: {form}"
    ends = []
    for stop in (0, 3):
        with in_fp16(tmp_path, fields, large=[5, 12]) as solver:
            solver._loss_scale.state = LossScaleState(64.0)
            if not stop:
                solver.step(8)
                ends.append((weights_of(solver), solver._loss_scale.state))
                continue
            solver.step(stop)
            solver.snapshot()
        path = tmp_path / f"net_iter_3.solverstate{'.h5' if form == 'HDF5' else ''}"
        with in_fp16(tmp_path, fields, large=[5, 12]) as solver:
            solver.restore(str(path))
            solver.step(5)
            ends.append((weights_of(solver), solver._loss_scale.state))
    (whole, state), (resumed, state_resumed) = ends
    assert torch.equal(whole, resumed)
    assert state == state_resumed != LossScaleState(64.0, 8)


def test_each_worker_of_hogwild_has_its_own(tmp_path):
    recorder = Recorder()
    with in_fp16(tmp_path, "comm_param { hogwild_threads: 2 }", large=[5], recorder=recorder) as solver:
        solver.step(4)
        assert torch.isfinite(weights_of(solver)).all()
    assert recorder.of(LossScaleChanged)
