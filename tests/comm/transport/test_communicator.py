import os
import subprocess
import sys

import numpy
import pytest

from mgcaffe.comm.transport.buffers import host_view, on_host
from mgcaffe.comm.transport.communicator import SingleCommunicator, Waiting, name_ranks
from mgcaffe.comm.transport.connect import connect
from mgcaffe.errors import CommError


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    kept = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**kept, **environment})


def test_importing_comm_loads_neither_torch_nor_mpi():
    code = (
        "import sys, mgcaffe.comm as comm\n"
        "assert not {'torch', 'mpi4py', 'numpy'} & set(sys.modules), 'on import'\n"
        "for name in comm.__all__: getattr(comm, name)\n"
        "comm.connect()\n"
        "assert not {'torch', 'mpi4py'} & set(sys.modules), 'on use'\n"
    )
    assert run_python(code).returncode == 0, run_python(code).stderr


def test_the_package_exports_what_it_lists():
    import mgcaffe.comm as comm

    assert sorted(comm._MODULE_OF) == sorted(comm.__all__) == dir(comm)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = comm.nonsense


def test_several_ranks_without_mpi4py_are_an_error():
    code = (
        "import sys; sys.modules['mpi4py'] = None\n"
        "from mgcaffe.comm import connect\n"
        "from mgcaffe.errors import CommError\n"
        "try: connect()\n"
        "except CommError as error: print(error)\n"
    )
    result = run_python(code, PMI_RANK="0", PMI_SIZE="2")
    assert "mpi4py is missing" in result.stdout and "pip install 'mgcaffe[mpi]'" in result.stdout, result.stderr


def test_a_launcher_of_another_mpi_is_an_error():
    pytest.importorskip("mpi4py")
    code = (
        "from mgcaffe.comm import connect\n"
        "from mgcaffe.errors import CommError\n"
        "try: connect()\n"
        "except CommError as error: print(error)\n"
    )
    result = run_python(code, PMI_RANK="1", PMI_SIZE="2", OMPI_MCA_btl="self")
    assert "says rank 1 of 2" in result.stdout and "says rank 0 of 1" in result.stdout, result.stderr


def test_one_rank_is_its_own_group():
    ranks = SingleCommunicator()
    buffer = numpy.array([1.0, 2.0])
    ranks.allreduce(buffer)
    ranks.broadcast(buffer)
    ranks.barrier()
    ranks.set_busy_polling(True)
    assert buffer.tolist() == [1.0, 2.0]
    assert (ranks.rank, ranks.size, ranks.local_rank, ranks.local_size) == (0, 1, 0, 1)
    assert ranks.gather("x") == ranks.allgather("x") == ["x"]
    assert ranks.broadcast_object("x") == "x"
    assert ranks.meet(b"m", 0.0) == [b"m"]
    assert isinstance(ranks.duplicate(), SingleCommunicator)
    ranks.close()


def test_connect_without_a_launcher_gives_one_rank(monkeypatch):
    for name in ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert connect().size == 1


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([3], "rank 3"), ([0, 1, 2, 5], "ranks 0-2,5"), ([4, 2], "ranks 2,4"), ([1, 0], "ranks 0-1")],
)
def test_ranks_are_named_briefly(ranks, text):
    assert name_ranks(ranks) == text


def test_a_tensors_view_shares_its_memory():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(2, 3)
    host_view(tensor)[:] = 7
    with on_host(tensor) as array:
        array += 1
    assert (tensor == 8).all()


def test_buffers_that_mpi_cannot_reduce_are_errors():
    torch = pytest.importorskip("torch")
    with pytest.raises(CommError, match="not contiguous"):
        host_view(numpy.zeros((4, 4))[:, ::2])
    with pytest.raises(CommError, match="not contiguous"):
        host_view(torch.zeros(4, 4).t()[1:, :2])
    with pytest.raises(CommError, match="float16"):
        host_view(numpy.zeros(4, dtype=numpy.float16))
    with pytest.raises(CommError, match="bfloat16"):
        host_view(torch.zeros(4, dtype=torch.bfloat16))


@pytest.mark.parametrize(("waited", "pause"), [(0.0, 2e-4), (0.02, 2e-4), (0.05, 5e-4), (0.1, 1e-3), (10.0, 1e-3)])
def test_who_has_waited_for_long_looks_less_often(waited, pause):
    assert Waiting().pause(waited) == pytest.approx(pause)
    assert Waiting(sleep_s=2e-3).pause(waited) == 2e-3
