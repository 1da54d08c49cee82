"""Flags, and the file beside the solver, over the solver's own fields."""

import pytest

from mgcaffe.prototxt import CommParameter, parse_solver
from mgcaffe.solvers.source import locate
from mgcaffe.tools.commands.train import parser
from mgcaffe.tools.running.comm_settings import apply_comm_flags
from mgcaffe.tools.running.training_run import read_solver


@pytest.mark.parametrize(
    ("words", "transport"), [([], "GLOO"), (["--transport=mpi"], "MPI"), (["--transport=nccl"], "NCCL")]
)
def test_the_flag_says_over_what_gradients_travel(words, transport):
    solver = parse_solver("comm_param { transport: GLOO }").param
    apply_comm_flags(solver, parser().parse([*words, "solver.prototxt"]))
    assert CommParameter.Transport.Name(solver.comm_param.transport) == transport


def test_auto_takes_back_what_the_solver_says():
    solver = parse_solver("comm_param { transport: GLOO }").param
    apply_comm_flags(solver, parser().parse(["--transport=auto", "solver.prototxt"]))
    assert not solver.comm_param.HasField("transport")


def test_messages_name_the_file_or_the_flag_that_gave_a_value(tmp_path):
    path, beside = tmp_path / "solver.prototxt", tmp_path / "solver.engine.prototxt"
    path.write_text("momentum: 0.9\nmax_iter: 5 precision: 'bf16'\ncomm_param { bucket_mb: 2 sync_every: 8 }\n")
    beside.write_text('snapshot_best: "loss"\ncomm_param { schedule: WFBP }\n')
    words = ["--precision=bf16", "--max_iter=9", "--sync=ma", "--sync_every=4", "--stage=small"]
    source = read_solver(parser().parse([str(path), *words]), str(path))
    places = {
        "momentum": f"{path}:1:1",
        "precision": f"{path}:2:13",  # as the flag has it
        "max_iter": "--max_iter",
        "base_lr": f"{path}:1:1",
        "snapshot_best": f"{beside}:1:1",
        "train_state.stage": "--stage",
        "comm_param.bucket_mb": f"{path}:3:14",
        "comm_param.sync_every": "--sync_every",
        "comm_param.schedule": f"{beside}:2:14",
        "comm_param": f"{path}:3:1, {beside}:2:14, --sync, --sync_every",
    }
    assert {field: str(locate(source, field)) for field in places} == places


@pytest.mark.parametrize(
    ("word", "field"),
    [
        ("--best=loss", "snapshot_best"),
        ("-best=loss", "snapshot_best"),
        ("--snapshot_best=loss", "snapshot_best"),
        ("--no_snapshot_background", "snapshot_background"),
        ("--no-snapshot-background", "snapshot_background"),
        ("--nohierarchical", "comm_param.hierarchical"),
        ("--level=2", "train_state.level"),
    ],
)
def test_messages_name_the_flag_as_it_was_given(tmp_path, word, field):
    path = tmp_path / "solver.prototxt"
    path.write_text("max_iter: 5\n")
    name = word.partition("=")[0].lstrip("-").replace("-", "_").replace("nohier", "hier")
    assert str(locate(read_solver(parser().parse([str(path), word]), str(path)), field)) == f"--{name}"


def test_every_field_of_a_flag_is_found_under_the_flags_name(tmp_path):
    path = tmp_path / "solver.prototxt"
    path.write_text("max_iter: 5\n")
    words = ["--schedule=wfbp", "--bucket_mb=3", "--deterministic", "--transport=mpi", "--nan_effect=skip",
             "--recompute=auto", "--winograd=safe", "--autotune=on", "--stage=a,b", "--bad_record=skip",
             "--bad_record_limit=3", "--debug_info", "--decoupled_weight_decay", "--row_wise_adagrad",
             "--snapshot_errors=stop", "--snapshot_keep=2", "--snapshot_tables=whole",
             "--on_trainer_loss=continue"]  # fmt: skip
    source = read_solver(parser().parse([str(path), *words]), str(path))
    assert {str(place) for place in source.given_elsewhere.values()} == {word.partition("=")[0] for word in words}
