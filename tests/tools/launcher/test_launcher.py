"""The launcher: its command line, and whole jobs, in which one process stands for the ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from mgcaffe.comm.supervision import status
from mgcaffe.errors import UsageError
from mgcaffe.tools.commands import train
from mgcaffe.tools.launcher import command as launcher_command
from mgcaffe.tools.launcher import launcher
from mgcaffe.tools.launcher.flags import is_launcher, words_for_ranks
from mgcaffe.tools.running import requeueing
from mgcaffe.tools.running.session import Session


def parse(*words):
    return train.parser().parse([*words, "solver.prototxt"])


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    for name in (*os.environ,):
        if name.startswith(("OMPI_", "PMIX_", "SLURM_", "PMI_", "MGCAFFE_")):
            monkeypatch.delenv(name)


# -- flags and the command line ----------------------------------------------------------------------------


def test_the_ranks_see_all_flags_but_the_launchers():
    flags = parse("-np", "2", "--max_restarts=3", "--schedule=wfbp", "-H", "a:2", "-mpirun_args", "-v", "--rescue")
    assert is_launcher(flags) and words_for_ranks(flags.words) == ["--schedule=wfbp", "solver.prototxt"]
    assert not is_launcher(parse("--schedule=wfbp"))


@pytest.mark.parametrize("words", [["--rescue"], ["--mpirun_args=-v"]])
def test_a_flag_for_mpirun_without_ranks_is_a_usage_error(words):
    with pytest.raises(UsageError, match="is for mpirun, which --np starts"):
        is_launcher(parse(*words))


@pytest.fixture
def mpirun(tmp_path, monkeypatch):
    """`mpirun(version)` puts an mpirun on the PATH, and this Python elsewhere."""

    def make(version):
        path = tmp_path / "bin" / "mpirun"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{version}'\n")
        path.chmod(0o755)
        return str(path)

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(launcher_command.sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(launcher_command.shutil, "which", _which_in(tmp_path))
    return make


def _which_in(folder):
    from shutil import which

    def only_ours(name, path):
        found = which(name, path=path)
        return found if found and found.startswith(str(folder)) else None

    return only_ours


def test_mpirun_gets_the_flags_it_needs(mpirun, monkeypatch):
    found = mpirun("mpirun (Open MPI) 5.0.11")
    monkeypatch.setattr(launcher_command, "_cores", lambda: 2)
    program = ["python", "-m", "engine"]
    rank = [*program, "train", "solver.prototxt"]
    command = launcher_command.rank_command(parse("-np", "4"), ["solver.prototxt"], program)
    assert command == [found, "-n", "4", "--bind-to", "none", "--oversubscribe", *rank]
    command = launcher_command.rank_command(parse("-np", "2", "--rescue"), ["solver.prototxt"], program)
    assert command == [found, "-n", "2", "--bind-to", "none", "--with-ft", "ulfm", *rank]


def test_other_hosts_get_the_environment_and_the_users_words_win(mpirun, monkeypatch):
    found = mpirun("mpirun (Open MPI) 5.0.11")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    flags = parse("-H", "a:2,b:2", "--mpirun_args", "--bind-to core --prefix '/opt/open mpi'")
    command = launcher_command.rank_command(flags, [], ["engine"])
    assert command[:5] == [found, "-n", "4", "--host", "a:2,b:2"]
    assert command[-6:] == ["--bind-to", "core", "--prefix", "/opt/open mpi", "engine", "train"]
    assert command.count("--bind-to") == 1 and "--oversubscribe" not in command
    handed_on = {command[index + 1] for index, word in enumerate(command) if word == "-x"}
    assert {"PYTHONPATH", status.FOLDER_VARIABLE, status.LAUNCHER_HOST_VARIABLE} <= handed_on
    delay = command.index("mpi_abort_delay")
    assert command[delay - 1 : delay + 2] == ["--mca", "mpi_abort_delay", "1"]


def test_a_delay_of_mpis_abort_that_the_user_sets_stays(mpirun, monkeypatch):
    mpirun("mpirun (Open MPI) 5.0.11")
    given = launcher_command.rank_command(parse("-H", "a:2,b:2", "--mpirun_args=--mca mpi_abort_delay 5"), [], ["x"])
    assert given.count("mpi_abort_delay") == 1
    monkeypatch.setenv("OMPI_MCA_mpi_abort_delay", "0")
    assert "mpi_abort_delay" not in launcher_command.rank_command(parse("-H", "a:2,b:2"), [], ["x"])


def test_open_mpis_files_lie_in_the_jobs_folder_unless_another_place_is_named(mpirun, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found = mpirun("mpirun (Open MPI) 5.0.11")

    def told(*words, **variables):
        flags = parse(*words)
        command = launcher_command.rank_command(flags, [], ["engine"])
        elsewhere = launcher_command.are_elsewhere(flags)
        environment = launcher_command.rank_environment(
            tmp_path / "job", command, are_elsewhere=elsewhere, environ=variables
        )
        return {name: value for name, value in environment.items() if name.startswith(("PRTE_", "OMPI_MCA_"))}

    session = {"PRTE_MCA_prte_local_tmpdir_base": str(tmp_path / "job")}
    memory = {"OMPI_MCA_btl_sm_backing_directory": str(tmp_path / "job")}
    assert told("-np", "2") == session | memory
    assert told("-H", "a:2,b:2") == session  # b has no such folder
    assert told("-np", "2", "--mpirun_args=-H a:2,b:2") == told("-np", "2", "--mpirun_args=--host a,b") == session
    assert told("-np", "2", PBS_NODEFILE="/nodes") == session
    assert told("--max_restarts=1") == {}  # one process, without mpirun
    assert told("-np", "2", "--mpirun_args=--prtemca prte_tmpdir_base /scratch") == memory
    for variable in ("PRTE_MCA_prte_tmpdir_base", "PRTE_MCA_prte_local_tmpdir_base"):
        assert told("-np", "2", **{variable: "/scratch"}) == memory | {variable: "/scratch"}
    older = {"OMPI_MCA_btl_vader_backing_directory": "/scratch"}
    assert told("-np", "2", **older) == session | older
    projects = ("openmpi", "prte", "pmix")
    etc = Path(found).parent.parent / "etc"
    system = [etc / f"{name}-mca-params{kind}.conf" for name in projects for kind in ("", "-override")]
    for file in (*system, *(home / f".{name}" / "mca-params.conf" for name in projects)):
        file.parent.mkdir(exist_ok=True)
        file.write_text("# prte_tmpdir_base = /scratch\n  # btl_sm_backing_directory = /scratch\n")
        assert told("-np", "2") == session | memory
        file.write_text("prte_tmpdir_base = /scratch\nbtl_sm_backing_directory=/scratch\n")
        assert told("-np", "2") == {}
        file.unlink()


def test_what_the_launcher_alone_gives_is_not_in_the_help():
    text = train.parser().format_help()
    assert "--max_restarts" in text and "restarted" not in text
    assert parse("--restarted=5").restarted == 5.0


def test_one_rank_needs_no_mpirun(mpirun):
    assert launcher_command.rank_command(parse("--max_restarts=1"), ["x"], ["engine"]) == ["engine", "train", "x"]


def test_without_mpirun_it_is_said_what_to_install(mpirun):
    with pytest.raises(UsageError, match=r"no mpirun beside this Python and none on the PATH\n.*pip install"):
        launcher_command.rank_command(parse("-np", "2"), [])


def test_another_mpis_mpirun_is_refused(mpirun):
    mpirun("HYDRA build details:")
    with pytest.raises(UsageError, match=r"is not Open MPI's \('HYDRA build details:'\)"):
        launcher_command.rank_command(parse("-np", "2"), [])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-np", "5", "-H", "a:2,b:2"], "has room for 4"),
        (["-H", "a:two"], "'a:two' is not a host"),
        (["-H", "a:2,,b"], "'' is not a host"),
        (["-np", "0"], "0 is too small"),
    ],
)
def test_hosts_and_ranks_that_make_no_sense_are_usage_errors(words, message):
    with pytest.raises(UsageError, match=message):
        launcher_command.count_ranks(parse(*words))


def test_words_for_mpirun_that_cannot_be_split_are_a_usage_error():
    with pytest.raises(UsageError, match=r"--mpirun_args --x 'y: no closing quotation"):
        launcher_command.rank_command(parse("-np", "2", "--mpirun_args=--x 'y"), [])


@pytest.mark.parametrize(
    ("words", "ranks"), [(["-np", "3"], 3), (["-H", "a:2,b"], 3), (["-np", "2", "-H", "a:4"], 2), ([], 1)]
)
def test_ranks_are_counted(words, ranks):
    assert launcher_command.count_ranks(parse(*words)) == ranks


# -- whole jobs, of one process ----------------------------------------------------------------------------

_RANK = """
import os, signal, sys, time
from pathlib import Path
from mgcaffe.comm.supervision import status
record = status.open_status(status.job_folder(), 0, 1)
heard = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda got, frame: heard.append(signal.Signals(got).name))
record.iteration(4)
record.doing(status.encode("forward, layer 'a'"))
Path("words").write_text(" ".join(sys.argv[1:]))
Path("started").open("a").write("x")
BODY
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """`run(body, words)` launches one process that runs `body`; gives the exit code and what was printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "start_logging", lambda speaks: None)
    monkeypatch.setattr(launcher, "log_line", lambda text: print(text, file=sys.stderr, flush=True))
    monkeypatch.setattr("mgcaffe.tools.launcher.restarts._LONGEST_DELAY_S", 0.1)

    def launch(body, *words):
        Path("rank.py").write_text(_RANK.replace("BODY", textwrap.dedent(body)))
        code = launcher.launch(parse(*words), [sys.executable, "rank.py"])
        return code, capfd.readouterr().err

    return launch


def test_exit_codes_are_passed_on(run):
    assert run("record.finish(status.ENDED, 65); sys.exit(65)", "-np", "1") == (65, "")
    assert run("record.finish(status.ENDED, 0)", "-np", "1") == (0, "")


def test_a_job_whose_mpirun_is_killed_leaves_nothing_of_it(run):
    body = """
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    Path(rank).write_text(os.environ["PMIX_SERVER_TMPDIR"])
    from mpi4py import MPI
    Path(f"memory{rank}").write_text(" ".join(path.name for path in status.job_folder().glob("sm_segment*")))
    MPI.COMM_WORLD.Barrier()
    if rank == "0": os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.2)
    os._exit(0)
    """
    if not Path(sys.executable).with_name("mpirun").exists():
        pytest.skip("there is no mpirun beside this Python")
    assert run(body, "-np", "2", "--mpirun_args=--oversubscribe")[0] == 69
    folders = {Path(Path(rank).read_text()) for rank in "01"}
    assert len(folders) == 1
    folder = folders.pop()
    assert [len(Path(f"memory{rank}").read_text().split()) > 0 for rank in "01"] == [True, True]
    assert folder.parent.name.startswith(f"mgcaffe-{os.getuid()}-") and not folder.parent.exists()


def test_a_killed_rank_is_named_and_gives_69(run):
    code, said = run("os.kill(os.getpid(), signal.SIGKILL)", "-np", "1")
    assert code == 69
    assert f"error: rank 0 of 1 on {os.uname().nodename}" in said and "was killed by signal 9 (SIGKILL)" in said
    assert "iteration: 4" in said and "doing:     forward, layer 'a'" in said


def test_a_job_that_died_is_started_again_with_what_it_was_told(run):
    body = """
    if Path("started").read_text() == "xx": record.finish(status.ENDED, 0); sys.exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    code, said = run(body, "--max_restarts=3", "--schedule=wfbp")
    assert code == 0
    assert "Exit code 69: starting again in 0.1 s" in said and "(restart 1 of 3)" in said
    assert Path("started").read_text() == "xx"
    command, restarted, *others = Path("words").read_text().split()
    assert (
        command == "train" and restarted.startswith("--restarted=") and others == ["--schedule=wfbp", "solver.prototxt"]
    )


def test_a_bad_prototxt_is_not_tried_again(run):
    code, said = run("record.finish(status.ENDED, 65); sys.exit(65)", "--max_restarts=3")
    assert code == 65 and Path("started").read_text() == "x"
    assert "would come again" in said


def test_a_launcher_among_ranks_is_a_usage_error(run, monkeypatch):
    monkeypatch.setenv(status.FOLDER_VARIABLE, "/somewhere")
    with pytest.raises(UsageError, match="this process is one itself"):
        run("", "-np", "1")


def test_a_signal_between_two_jobs_is_announced_when_the_next_one_can_be_asked(run, monkeypatch):
    waits = launcher._Wishes.sleep

    def sleep(wishes, seconds):
        os.kill(os.getpid(), signal.SIGUSR2)
        waits(wishes, seconds)

    monkeypatch.setattr(launcher._Wishes, "sleep", sleep)
    body = """
    if Path("started").read_text() == "x": os.kill(os.getpid(), signal.SIGKILL)
    deadline = time.monotonic() + 30
    while "SIGUSR2" not in heard and time.monotonic() < deadline: time.sleep(0.01)
    record.finish(status.ENDED, 0 if heard == ["SIGUSR2"] else 1)
    sys.exit(0 if heard == ["SIGUSR2"] else 1)
    """
    code, said = run(body, "--max_restarts=1")
    assert code == 0, said
    lines = [line for line in said.splitlines() if line.startswith(("SIGUSR2", "Exit code"))]
    assert lines[0].startswith("Exit code 69: starting again")
    # The next job may still be starting at the first look.
    assert lines[-1] == "SIGUSR2: asking the ranks for a snapshot after this iteration"


def test_a_stop_between_two_jobs_asks_nobody(run, monkeypatch):
    monkeypatch.setattr(launcher._Wishes, "sleep", lambda wishes, seconds: os.kill(os.getpid(), signal.SIGTERM))
    code, said = run("os.kill(os.getpid(), signal.SIGKILL)", "--max_restarts=1")
    assert code == 75 and Path("started").read_text() == "x"
    assert [line for line in said.splitlines() if "SIGTERM" in line] == ["SIGTERM: not starting again"]


@pytest.mark.parametrize(
    ("number", "wish"), [(signal.SIGTERM, "to stop"), (signal.SIGUSR2, "for a snapshot")], ids=["stop", "snapshot"]
)
def test_a_signal_after_the_ranks_end_is_not_said_to_have_been_handed_on(run, monkeypatch, number, wish):
    watches = launcher._Job._watch

    def watch(job, seconds):
        if job._process.returncode is not None:
            os.kill(os.getpid(), number)
        watches(job, seconds)

    monkeypatch.setattr(launcher._Job, "_watch", watch)
    code, said = run("record.finish(status.ENDED, 0)", "-np", "1")
    assert code == 0
    assert said.splitlines() == [f"{number.name}: no rank is running that could be asked {wish}"]


def test_a_signal_while_the_ranks_start_is_said_to_wait(run):
    body = """
    record.doing(status.encode(status.STARTING)); record.iteration(-1)
    os.kill(os.getppid(), signal.SIGTERM)
    time.sleep(1)
    assert not heard
    record.iteration(0); record.doing(status.encode("forward"))
    deadline = time.monotonic() + 30
    while not heard and time.monotonic() < deadline: time.sleep(0.01)
    record.finish(status.ENDED, 75)
    sys.exit(75)
    """
    code, said = run(body, "-np", "1")
    assert code == 75
    assert said.splitlines() == [
        "SIGTERM: the ranks are asked to stop as soon as all of them are up",
        "SIGTERM: asking the ranks to stop after this iteration, with a snapshot",
    ]


@pytest.mark.parametrize("fails", [False, True])
def test_all_that_ranks_elsewhere_said_is_passed_on_also_where_the_launcher_fails(run, monkeypatch, capfd, fails):
    monkeypatch.setattr(launcher, "are_elsewhere", lambda flags: True)
    watches = launcher._Job._watch

    def watch(job, seconds):
        watches(job, seconds)
        if fails and Path("said").exists():
            raise RuntimeError("cannot watch")

    monkeypatch.setattr(launcher._Job, "_watch", watch)
    passed_on = launcher.Relay._pass_on
    monkeypatch.setattr(launcher.Relay, "_pass_on", lambda relay, data: (time.sleep(0.3), passed_on(relay, data)))
    body = """
    sys.stderr.write("line\\n" * 10000); sys.stderr.flush(); Path("said").touch()
    if FAILS: time.sleep(30)
    record.finish(status.ENDED, 0)
    """.replace("FAILS", str(fails))
    if fails:
        with pytest.raises(RuntimeError, match="cannot watch"):
            run(body, "-np", "1")
        said = capfd.readouterr().err
    else:
        _, said = run(body, "-np", "1")
    assert said == "line\n" * 10000


def test_the_last_block_waits_for_standard_error_that_does_not_block(monkeypatch):
    reading, writing = os.pipe()
    kept = os.dup(2)
    got = bytearray()
    try:
        os.dup2(writing, 2)
        os.set_blocking(2, False)
        os.close(writing)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(2, b"x" * (1 << 12))
        speaker = threading.Thread(target=launcher._say, args=("error: rank 1 is gone",))
        speaker.start()
        speaker.join(0.2)
        assert speaker.is_alive()
        while not got.endswith(b"is gone\n"):
            got += os.read(reading, 1 << 16)
        speaker.join()
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(reading)
    assert got.strip(b"x") == b"error: rank 1 is gone\n"


_LAUNCH = """
import sys
from mgcaffe.tools.commands import train
from mgcaffe.tools.launcher import launcher
sys.exit(launcher.launch(train.parser().parse(sys.argv[1:]), [sys.executable, "rank.py"]))
"""

_WAITS = """
import threading
threading.Event().wait(0.01)
deadline = time.monotonic() + 30
while "SIGUSR1" not in heard and time.monotonic() < deadline: time.sleep(0.01)
Path("heard").write_text(" ".join(heard))
if "forever" in sys.argv[-1]: time.sleep(60)
record.finish(status.ENDED, 75)
sys.exit(75)
"""


@pytest.fixture
def start(tmp_path):
    """`start(words)` launches a process that waits for SIGUSR1; returns once it runs."""
    processes = []

    def launch(*words):
        (tmp_path / "rank.py").write_text(_RANK.replace("BODY", _WAITS))
        process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, "-np", "1", *words],
            cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        deadline = time.monotonic() + 30
        while not (tmp_path / "started").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        return process

    yield launch
    for process in processes:
        process.kill()
        process.wait()


def test_signals_are_translated_and_the_code_is_passed_on(start, tmp_path):
    process = start("solver.prototxt")
    process.send_signal(signal.SIGHUP)
    time.sleep(0.6)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 75, said
    assert (tmp_path / "heard").read_text().split() == ["SIGUSR2", "SIGUSR1"]
    told = [line.partition("] ")[2] for line in said.splitlines()]
    assert told == [
        "SIGHUP: asking the ranks for a snapshot after this iteration",
        "SIGINT: asking the ranks to stop after this iteration, with a snapshot",
    ]


def test_a_second_sigint_ends_the_job_at_once(start, tmp_path):
    process = start("forever")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    while not (tmp_path / "heard").exists():
        assert time.monotonic() < began + 30
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1 and "interrupted" in said


# -- Slurm -------------------------------------------------------------------------------------------------


def test_requeueing_needs_slurm_and_a_way_to_go_on(monkeypatch):
    with pytest.raises(UsageError, match="SLURM_JOB_ID is not set"):
        requeueing.check_requeue("auto")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    with pytest.raises(UsageError, match="--snapshot=auto"):
        requeueing.check_requeue(None)
    requeueing.check_requeue("auto")
    with pytest.raises(UsageError, match="--snapshot=auto"):  # without the launcher too
        train.run(parse("--requeue"), Session())


@pytest.mark.parametrize(("cause", "asked"), [("SIGUSR1", "requeue 17"), ("SIGTERM", "requeue 17"), ("SIGINT", "")])
def test_only_slurms_signals_requeue_the_job(tmp_path, monkeypatch, cause, asked):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    requeueing.requeue(cause)
    path = tmp_path / "asked"
    assert (path.read_text().strip() if path.exists() else "") == asked
