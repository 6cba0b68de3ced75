"""Why steps take longer: the part of a step that grew, and the rank that others wait for."""

from __future__ import annotations

import pytest

from pharoah.local_alerts._slow_causes import Change, explain
from pharoah.local_alerts._step_windows import typical_window
from pharoah_protocol.vocabulary import Attribution, Resource
from tests.harness.local_views import window_of

USUAL = window_of()


@pytest.mark.parametrize(
    ("after", "resource"),
    [
        ({"took": 0.15, "queued": 0.05}, Resource.COMPUTE),
        ({"took": 0.15, "computed": 0.15, "stolen": 0.05}, Resource.COMPUTE),
        ({"took": 0.15, "throttled": 0.05}, Resource.COMPUTE),
        ({"took": 0.15, "computed": 0.15, "others": 0.9}, Resource.MEMORY_BANDWIDTH),
        ({"took": 0.15, "blocked": 0.5}, Resource.STORAGE),
        ({"took": 0.15, "blocked": 0.1, "disk_waited": 0.04}, Resource.STORAGE),
        ({"took": 0.15, "disk_waited": 0.04}, None),  # somebody else waits for a disk
        ({"took": 0.15, "throttled": 0.02}, None),  # too little to explain the change
        ({"took": 0.15, "computed": 0.15, "throttled": 0.06}, None),  # the job computes more, and reaches its limit
        ({"took": 0.15, "computed": 0.15, "stolen": 0.02}, None),
        ({"took": 0.15, "computed": 0.15, "others": 0.9, "cores": 96.0}, None),  # what daemons of a large machine use
        ({"took": 0.15, "computed": 0.15, "others": 2.9, "cores": 96.0}, Resource.MEMORY_BANDWIDTH),
        ({"took": 0.15, "computed": 0.15}, None),  # the job computes more: longer sequences
        ({"took": 0.15, "moved_bytes": 1e6, "blocked": 0.5}, None),  # the job writes more: checkpoints
    ],
)
def test_the_part_of_a_step_that_grew_names_the_resource(after: dict[str, float], resource: Resource | None) -> None:
    cause = explain({0: Change(USUAL, window_of(**after))}, {}, distributed=False).cause
    assert (cause and cause.resource) == resource


def test_a_job_with_half_a_core_that_computes_more_has_no_cause_outside() -> None:
    """Its time in the queue grows with its computing: it gets half a core, as before."""
    before = window_of(took=0.1, computed=0.05, queued=0.05, throttled=0.05)
    longer = window_of(took=0.3, computed=0.15, queued=0.15, throttled=0.15, worker_computed=0.01)
    assert explain({0: Change(before, longer)}, {}, distributed=False).cause is None
    neighbour = explain(
        {0: Change(before, window_of(took=0.2, computed=0.05, queued=0.15, throttled=0.05))}, {}, distributed=False
    ).cause
    assert neighbour is not None
    assert neighbour.fault_domain is Attribution.NEIGHBOUR


def test_a_limit_that_holds_as_before_explains_nothing_where_windows_are_of_two_kinds() -> None:
    """Medians of the parts of a step said that the job computes less, so that its limit seemed to be tighter."""
    before = typical_window(
        [
            window_of(took=0.126, computed=0.0609, queued=0.0651, throttled=0.07),
            window_of(took=0.129, computed=0.052, queued=0.077, throttled=0.07),
            window_of(took=0.1401, computed=0.065, queued=0.0751, throttled=0.07),
        ]
    )
    after = typical_window(
        [
            window_of(took=0.137, computed=0.0588, queued=0.0782, throttled=0.0742),
            window_of(took=0.136, computed=0.07, queued=0.066, throttled=0.0742),
            window_of(took=0.138, computed=0.058, queued=0.0723, throttled=0.0742),
        ]
    )
    assert after.took / before.took == pytest.approx(1.06, abs=0.01)
    assert explain({0: Change(before, after)}, {}, distributed=False).cause is None


def test_the_rank_that_others_wait_for_is_named() -> None:
    waits = Change(window_of(computed=0.08), window_of(took=0.16, computed=0.08))
    queued = Change(window_of(computed=0.08), window_of(took=0.16, computed=0.08, queued=0.06))
    found = explain({0: waits, 1: waits, 2: queued, 3: waits}, {}, distributed=True)
    assert found.late_rank == 2
    assert found.cause is not None
    assert found.cause.fault_domain is Attribution.NEIGHBOUR


def test_ranks_that_all_wait_have_a_slow_network_unless_one_calls_late() -> None:
    waits = Change(window_of(computed=0.08), window_of(took=0.16, computed=0.08))
    changes = {0: waits, 1: waits}
    network = explain(changes, {0: 0.0, 1: 0.001}, distributed=True)
    assert network.late_rank is None
    assert network.cause is not None
    assert network.cause.resource is Resource.NETWORK
    assert explain(changes, {0: 0.0, 1: 0.06}, distributed=True).late_rank == 1


@pytest.mark.parametrize(
    ("worked", "distributed", "resource", "who"),
    [
        ({"worker_computed": 0.01}, False, Resource.STORAGE, Attribution.UNKNOWN),
        ({"worker_moved": 300.0}, False, Resource.STORAGE, Attribution.UNKNOWN),  # slices of a file that is mapped
        ({"worker_computed": 0.01}, True, Resource.STORAGE, Attribution.UNKNOWN),  # both waits look the same
        ({}, True, Resource.NETWORK, Attribution.FABRIC),  # a sidecar, or a pool of compilers that has nothing to do
        ({}, False, None, None),
    ],
)
def test_only_workers_that_have_worked_can_be_late(
    worked: dict[str, float], distributed: bool, resource: Resource | None, who: Attribution | None
) -> None:
    before = window_of(computed=0.08, **worked)
    after = window_of(took=0.16, computed=0.08)
    cause = explain({0: Change(before, after)}, {}, distributed=distributed).cause
    assert (cause and cause.resource, cause and cause.fault_domain) == (resource, who)


def test_a_limit_that_is_tightened_explains_the_change_where_the_job_was_throttled_before() -> None:
    """Half of the share that a job had: it computes as long as before, and waits for its share in the rest."""
    before = window_of(took=0.4, computed=0.1, queued=0.3, throttled=0.3)
    after = window_of(took=0.8, computed=0.1, queued=0.7, throttled=0.7)
    cause = explain({0: Change(before, after)}, {}, distributed=False).cause
    assert cause is not None and cause.fault_domain is Attribution.PLATFORM


@pytest.mark.parametrize(
    ("after", "undecided"),
    [
        ({"took": 0.15, "computed": 0.13, "queued": 0.02}, True),  # a neighbour that takes turns, and fills the caches
        ({"took": 0.15, "computed": 0.149, "queued": 0.001}, False),  # longer sequences
    ],
)
def test_the_cause_of_a_change_may_show_later_while_a_job_is_queued_more(
    after: dict[str, float], undecided: bool
) -> None:
    found = explain({0: Change(USUAL, window_of(**after))}, {}, distributed=False)
    assert (found.cause, found.undecided) == (None, undecided)
