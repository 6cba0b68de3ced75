from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.models.cross_validation import Comparison
from pharoah_provider.monitoring.incidents import CLEAN_WINDOWS, FIRST_PAUSE_SECONDS, UNDECIDED_PAUSE_SECONDS, Incident

CLEAR, FAINT, HEALTHY = ([Comparison("memory", ratio, 1.0, 0.03, 0.06)] for ratio in (1.4, 1.22, 1.0))


def fed(incident: Incident, *risky: bool) -> list[str]:
    return [change for flag in risky if (change := incident.window(flag, 0.0))]


def test_one_risky_window_is_not_a_suspicion_two_of_three_are() -> None:
    incident = Incident()
    assert fed(incident, True, False, False) == []
    assert fed(incident, True, False, True) == ["suspected"]


def test_an_alert_fires_once_and_clears_once() -> None:
    incident = Incident()
    fed(incident, True, True)
    assert incident.validated(CLEAR) == "confirmed"
    assert incident.validated(CLEAR) is None
    assert fed(incident, *[True] * 4, *[False] * (CLEAN_WINDOWS + 3)) == ["cleared"]


def test_a_suspicion_nobody_confirmed_is_dismissed() -> None:
    incident = Incident()
    fed(incident, True, True)
    assert incident.validated(HEALTHY) is None
    assert fed(incident, *[False] * CLEAN_WINDOWS) == ["dismissed"]


def test_a_node_that_is_validated_healthy_twice_is_cleared_though_its_job_is_still_slow() -> None:
    incident = Incident()
    fed(incident, True, True)
    assert [incident.validated(shown) for shown in (CLEAR, FAINT, HEALTHY, HEALTHY)] == [
        "confirmed", None, None, "cleared",
    ]  # fmt: skip


def test_validation_pauses_grow() -> None:
    incident = Incident()
    fed(incident, True, True)
    asked = [t for t in range(100) if incident.wants_validation(float(t))]
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] >= FIRST_PAUSE_SECONDS and gaps == sorted(gaps)


def test_a_calm_run_is_never_validated() -> None:
    incident = Incident()
    fed(incident, False, True, False)
    assert not incident.wants_validation(1e9)


@given(st.lists(st.one_of(st.booleans(), st.sampled_from(["slow", "healthy"])), max_size=60))
def test_fires_and_resolves_alternate(events: list[bool | str]) -> None:
    incident, told = Incident(), []
    for event in events:
        change = (
            incident.validated(CLEAR if event == "slow" else HEALTHY)
            if isinstance(event, str)
            else incident.window(event, 0.0)
        )
        if change in ("confirmed", "cleared"):
            told.append(change)
    assert all(change == ("confirmed", "cleared")[i % 2] for i, change in enumerate(told))


def test_validations_add_up_and_health_takes_away() -> None:
    incident = Incident()
    fed(incident, True, True)
    assert incident.validated(FAINT) is None
    assert incident.validated(FAINT) == "confirmed"
    forgiven = Incident()
    fed(forgiven, True, True)
    assert [forgiven.validated(shown) for shown in (FAINT, HEALTHY, HEALTHY, FAINT)] == [None] * 4


def test_a_new_suspicion_starts_without_evidence() -> None:
    incident = Incident()
    fed(incident, True, True)
    incident.validated(FAINT)
    fed(incident, *[False] * CLEAN_WINDOWS, True, True)
    assert incident.state == "suspected"
    assert incident.validated(FAINT) is None


def test_an_undecided_suspicion_is_validated_again_soon() -> None:
    incident = Incident()
    fed(incident, True, True)
    incident.validated(FAINT)
    assert incident.wants_validation(100.0)
    assert incident.wants_validation(100.0 + UNDECIDED_PAUSE_SECONDS)
