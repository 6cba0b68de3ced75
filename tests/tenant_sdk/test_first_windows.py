"""Ranks that are late, and nodes that are slow, from the first step on."""

from __future__ import annotations

import pytest

from pharoah.local_alerts import View, detectors
from pharoah_protocol.vocabulary import Attribution, Resource
from tests.harness.local_views import process_reading


@pytest.mark.parametrize(
    ("queued", "throttled", "who"),
    [(0.0, 0.0, Attribution.NODE), (0.6, 0.0, Attribution.NEIGHBOUR), (0.0, 0.7, Attribution.PLATFORM)],
)
def test_a_rank_that_is_late_from_the_first_step_on_is_named(queued: float, throttled: float, who: Attribution) -> None:
    """The third of four ranks needs all of its time, and the others wait 60 % of theirs."""
    watching, raised = detectors()["late_rank"].start(), []
    for at in range(120):
        late = process_reading(
            main_computed_seconds=at * (1 - queued - throttled), main_queued_seconds=at * queued,
            throttled_seconds=at * throttled,
        )  # fmt: skip
        usual = process_reading(main_computed_seconds=at * 0.3)
        if throttled:
            usual = process_reading(main_computed_seconds=at * 0.1)
        steps = dict.fromkeys(range(4), [0.2] * 5)
        raised += watching.look(View(at=at, unix=at, steps=steps, processes={0: usual, 1: usual, 2: late, 3: usual}))
    assert raised[0].where == "this node, rank 2"
    assert raised[0].fault_domain is who


def test_ranks_that_need_as_long_as_each_other_have_no_late_one() -> None:
    watching = detectors()["late_rank"].start()
    for at in range(120):
        processes = {rank: process_reading(main_computed_seconds=at * (0.5 + 0.05 * rank)) for rank in range(4)}
        steps = dict.fromkeys(range(4), [0.2] * 5)
        assert not list(watching.look(View(at=at, unix=at, steps=steps, processes=processes)))


def test_ranks_that_all_wait_for_their_data_have_no_late_one() -> None:
    """One rank computes for 6 % of its steps and the others for 3 %: the rest is the time of what loads their data."""
    watching = detectors()["late_rank"].start()
    for at in range(120):
        processes = {rank: process_reading(main_computed_seconds=at * (0.06 if rank else 0.03)) for rank in (0, 1)}
        steps = dict.fromkeys((0, 1), [0.2] * 5)
        assert not list(watching.look(View(at=at, unix=at, steps=steps, processes=processes)))


@pytest.mark.parametrize(
    ("expected", "busy", "raised"),
    [
        (0.2 / 7, 0.9, True),  # clocked down to a seventh
        (0.2 / 2, 0.9, False),  # twice as long is within what predictions miss by
        (0.2 / 7, 0.1, False),  # the job waits for something, and its processor does not show
        (0.0, 0.9, False),  # nobody has measured what the node can do
    ],
)
def test_steps_that_take_several_times_as_long_as_the_node_should_need_are_found(
    expected: float, busy: float, raised: bool
) -> None:
    watching, found = detectors()["below_prediction"].start(), []
    for at in range(120):
        processes = {rank: process_reading(main_computed_seconds=at * busy) for rank in range(2)}
        steps = dict.fromkeys(range(2), [0.2] * 5)
        view = View(at=at, unix=at, steps=steps, processes=processes, expected_step_seconds=expected)
        found += watching.look(view)
    assert bool(found) is raised
    if raised:
        assert found[0].resource is Resource.COMPUTE
        assert found[0].step_ratio == pytest.approx(7, rel=0.05)


def evaluating(at: int) -> tuple[list[float], float]:
    """Steps that end in this second, and the time that the rank has computed in it: half of each step, but for an
    evaluation that one rank makes alone from 20 s to 40 s."""
    if 20 <= at < 40:
        return [], 1.0
    return ([20.1] if at == 40 else [0.1]) + [0.1] * 9, 0.5


def test_one_evaluation_among_the_first_steps_makes_no_rank_late_and_no_node_slow() -> None:
    late, slow = detectors()["late_rank"].start(), detectors()["below_prediction"].start()
    computed = 0.0
    for at in range(200):
        steps, more = evaluating(at)
        computed += more
        processes = {
            0: process_reading(main_computed_seconds=computed),
            1: process_reading(main_computed_seconds=at * 0.5),
        }
        view = View(
            at=at, unix=at, steps={0: steps, 1: [0.1] * 10}, processes=processes, expected_step_seconds=0.04
        )  # fmt: skip
        assert not list(late.look(view)) and not list(slow.look(view)), at


def test_an_alert_about_one_rank_does_not_go_on_for_another() -> None:
    watching, where = detectors()["late_rank"].start(), []
    computed = {0: 0.0, 1: 0.0, 2: 0.0}
    for at in range(400):
        late = 1 if at < 150 else 2
        for rank in computed:
            computed[rank] += 1.0 if rank == late else 0.3
        processes = {rank: process_reading(main_computed_seconds=seconds) for rank, seconds in computed.items()}
        view = View(at=at, unix=at, steps=dict.fromkeys(range(3), [0.2] * 5), processes=processes)
        where += [one.where for one in watching.look(view)]
    assert set(where) == {"this node, rank 1"} and len(where) < 200


def test_what_the_newest_windows_do_not_show_any_more_is_withdrawn_for_good() -> None:
    watching, holds = detectors()["late_rank"].start(), []
    computed = {0: 0.0, 1: 0.0}
    for at in range(400):
        computed[0] += 0.3
        computed[1] += 1.0 if at < 150 or at > 300 else 0.3
        processes = {rank: process_reading(main_computed_seconds=seconds) for rank, seconds in computed.items()}
        view = View(at=at, unix=at, steps=dict.fromkeys(range(2), [0.2] * 5), processes=processes)
        holds.append(bool(list(watching.look(view))))
    assert holds[100] and holds[149]
    assert not any(holds[215:]), "the later slowness has a before, and other detectors compare with it"
