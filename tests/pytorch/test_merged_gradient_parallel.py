"""The same bits as DistributedDataParallel, and errors that end all ranks: two ranks of gloo, each a process."""

import json
import sys

import pytest

from tests.support.ddp_checks import CHECKS
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
MAX_APART_S = 10
LACKING = "2 parameters got no gradient in a backward pass on rank 1: 'rest.weight', 'rest.bias'"
DIFFERS = "the module on rank 1 is not that of rank 0: parameter 'b.weight' is float32 (7, 6) on cpu there"
CONVERTED = "parameter 'a.weight' is torch.float64 on cpu now, and was torch.float32 on cpu"
# What ends each scenario: the line on rank 0, the line on rank 1.
ENDS = {
    "forward": (
        "rank 0 cannot go on: rank 1 ended with ValueError: rank 1 fails in forward",
        "ValueError: rank 1 fails",
    ),
    "backward": ("rank 0 cannot go on: rank 1 ended with ValueError: rank 1 fails in backward", "ValueError: rank 1"),
    "killed": ("PeerFailure: rank 1 is gone", ""),
    "lacking": (LACKING.replace("rank 1", "rank 0"), LACKING),
    "one_lacks": (f"rank 0 cannot go on: rank 1 ended with CommError: {LACKING}", LACKING),
    "other_shape": (DIFFERS, DIFFERS),
    "converted": (CONVERTED, CONVERTED),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    command = [sys.executable, "-m", "tests.support.programs.ddp_ranks", tmp_path_factory.mktemp("ranks")]
    with RunningJob([*command, "checks", *ENDS], cwd=ROOT) as job:
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
    assert outcome["codes"] == [1, -9 if name == "killed" else 1]
    assert outcome["apart"] < MAX_APART_S
    for expected, text in zip(ENDS[name], outcome["errors"], strict=True):
        assert expected in text
