"""The same bits as DistributedDataParallel, and errors that end all ranks: two ranks of gloo, each a process."""

import json
import sys

import pytest

from tests.support.ddp_checks import CHECKS
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
MAX_LATE_S = 10
LACKING = "2 parameters got no gradient in a backward pass on rank 1: 'rest.weight', 'rest.bias'"
DIFFERS = "the module on rank 1 is not that of rank 0: parameter 'b.weight' is float32 (7, 6) on cpu there"
CONVERTED = "parameter 'a.weight' is torch.float64 on cpu now, and was torch.float32 on cpu"
GONE = "exited without an error message: killed, crashed, or ended by a library"
STOPPED = "is stopped by a signal (SIGSTOP or the like)"
LEFT = "has ended"
WENT_ON = "and has computed nothing for"
FOREVER = "never ends by itself"
# What each rank says in each scenario.
ENDS = {
    "forward": [
        "rank 0 cannot go on: rank 1 ended with ValueError: rank 1 fails in forward",
        "ValueError: rank 1 fails",
    ],
    "backward": ["rank 0 cannot go on: rank 1 ended with ValueError: rank 1 fails in backward", "ValueError: rank 1"],
    "killed in backward": [GONE, ""],
    "killed in forward of three": [GONE, GONE, ""],
    "stopped in forward": [STOPPED, FOREVER],
    "rank 0 stopped in backward of three": [FOREVER, STOPPED, STOPPED],
    "caught in forward": [f"raised ValueError: rank 1 fails in forward in its forward pass, {WENT_ON}", FOREVER],
    "caught in backward of three": [f"raised an exception in its backward pass, {WENT_ON}"] * 2 + [FOREVER],
    "caught in on_group": [f"raised ValueError: rank 1 fails in on_group in its backward pass, {WENT_ON}", FOREVER],
    "caught, converted": [
        f"raised UsageError: {CONVERTED} when the module was wrapped in its forward pass, {WENT_ON}",
        FOREVER,
    ],
    "caught, replaced": [
        "raised UsageError: the module's parameters, such as 'a.weight', have been replaced by others since it was"
        f" wrapped, whose gradients are not averaged in its backward pass, {WENT_ON}",
        FOREVER,
    ],
    "lacking": [LACKING.replace("rank 1", "rank 0"), LACKING],
    "one_lacks": [f"rank 0 cannot go on: rank 1 ended with CommError: {LACKING}", LACKING],
    "other_shape": [DIFFERS, DIFFERS],
    "converted": [CONVERTED, CONVERTED],
    "leaves": [LEFT, ""],
}
# What looks like a failure to others, and is none.
PASSES = ("caught in forward, retried", "slow in backward")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, "-m", "tests.support.programs.ddp_ranks", tmp_path_factory.mktemp("ranks")]
    with RunningJob([*command, "checks", *ENDS, *PASSES], cwd=ROOT) as job:
        result = job.end(150)
    assert result.code == 0 and not result.left_behind, result.describe()
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", CHECKS)
def test_weights_and_gradients_equal_those_of_ddp_to_the_bit(outcomes, name):
    for rank, said in enumerate(outcomes["checks"]["said"]):
        assert said.get(name) == "equal", outcomes["checks"]["errors"][rank]


@pytest.mark.parametrize("name", ENDS)
def test_a_failure_ends_all_ranks_with_a_message_that_names_it(outcomes, name):
    outcome = outcomes[name]
    failing = 0 if "rank 0" in name else len(ENDS[name]) - 1
    for rank, (expected, text) in enumerate(zip(ENDS[name], outcome["errors"], strict=True)):
        is_killed = expected == FOREVER or ("killed" in name and rank == failing)
        leaves = name == "leaves" and rank == failing
        assert outcome["codes"][rank] == (-9 if is_killed else 0 if leaves else 1), text
        if expected != FOREVER:
            assert expected in text
        if expected in (GONE, STOPPED, LEFT):
            assert f"rank {rank} cannot go on: rank {failing} of {len(ENDS[name])} on " in text
        late = outcome["till_error"][rank]
        assert late is None or late < MAX_LATE_S


@pytest.mark.parametrize("name", PASSES)
def test_a_rank_that_tries_again_or_is_slow_is_waited_for(outcomes, name):
    assert outcomes[name]["codes"] == [0, 0], outcomes[name]["errors"]
