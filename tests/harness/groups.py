"""Which worker runs which test (pytest-xdist, `--dist loadgroup`): one worker runs a group, one test after another.

The mark `xdist_group` of pytest-xdist 3.8 says nothing to pytest 9.2 or newer, whose tests no longer take the name of
the group into their ids. So the groups stand here, by the ids of their tests.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

GROUPS = {
    "tests/tenant_sdk/test_classes.py": "classes",
    "tests/architecture/test_plugins.py": "plugins",
    "tests/process/test_whole_loop.py": "machine",
    "tests/contract/test_server_limits.py::test_multiplying_does_not_hold_up_the_event_loop": "machine",
    "tests/benchmarks/test_ceilings.py::test_a_measurement_can_be_read_and_has_all_kinds": "machine",
}
"""Beginnings of ids to groups. Tests of one module are a group when they share a result that takes long. Tests that
measure times or take whole cores are in the group "machine"."""


def unit_of(nodeid: str) -> str:
    """The group of a test, or its own id."""
    return next((group for beginning, group in GROUPS.items() if nodeid.startswith(beginning)), nodeid)


class GroupScheduling(LoadGroupScheduling):
    """Every group is one unit of work, and every test without a group is one, too. The largest come first."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)
