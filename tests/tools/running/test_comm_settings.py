"""Flags over the solver's own fields."""

import pytest

from mgcaffe.prototxt import CommParameter, parse_solver
from mgcaffe.tools.commands.train import parser
from mgcaffe.tools.running.comm_settings import apply_comm_settings


@pytest.mark.parametrize(
    ("words", "transport"), [([], "GLOO"), (["--transport=mpi"], "MPI"), (["--transport=nccl"], "NCCL")]
)
def test_the_flag_says_over_what_gradients_travel(tmp_path, words, transport):
    solver = parse_solver("comm_param { transport: GLOO }").param
    apply_comm_settings(solver, tmp_path / "solver.prototxt", parser().parse([*words, "solver.prototxt"]))
    assert CommParameter.Transport.Name(solver.comm_param.transport) == transport


def test_auto_takes_back_what_the_solver_says(tmp_path):
    solver = parse_solver("comm_param { transport: GLOO }").param
    apply_comm_settings(solver, tmp_path / "solver.prototxt", parser().parse(["--transport=auto", "solver.prototxt"]))
    assert not solver.comm_param.HasField("transport")
