"""Every schedule can be named wherever CONTRIBUTING.md says that a new one is to be named."""

from __future__ import annotations

from mgcaffe.comm.planning.schedules import SCHEDULES, Schedule
from mgcaffe.prototxt import CommParameter
from mgcaffe.tools.flags import comm_flags
from mgcaffe.tools.speedup_plot import _STYLES


def test_every_schedule_has_a_flag_a_number_and_a_colour():
    assert {str(schedule) for schedule in Schedule} == {*SCHEDULES, "auto"} == set(comm_flags.SCHEDULES)
    assert {name.lower() for name in CommParameter.Schedule.keys()} == set(comm_flags.SCHEDULES)
    assert set(_STYLES) == set(SCHEDULES)
