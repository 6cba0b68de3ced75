from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.models.cross_validation import Comparison
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, IncidentState
from pharoah_provider.domain import Run, Subject
from pharoah_provider.monitoring.counters import CLEAN_SECONDS, RunCounters
from pharoah_provider.monitoring.incidents import FIRST_PAUSE_SECONDS, UNDECIDED_PAUSE_SECONDS, Incident

CLEAR, FAINT, HEALTHY = ([Comparison("memory", ratio, 1.0, 0.03, 0.06)] for ratio in (1.4, 1.22, 1.0))


RUN = Run(b"r" * 16, "acme/one", "n1", attempt=1, ranks=1, beside_job=True, limit_seconds=5.0)
ACME = RUN.organisation


class OneRank:
    """An incident with the counters of a run of one rank."""

    def __init__(self) -> None:
        self.incident, self.counters = Incident(Subject.node("n1")), RunCounters(1)

    def feel(self, *risky: bool) -> list[IncidentState]:
        return [change for flag in risky if (change := self._second(flag))]

    def _second(self, risky: bool) -> IncidentState | None:
        if self.counters.second(0, risky):
            return self.incident.suspect(0.0, RUN)
        return None if self.counters.raised else self.incident.calm()


def suspected() -> OneRank:
    run = OneRank()
    assert run.feel(True, True) == ["suspected"]
    return run


def test_an_incident_is_confirmed_once_and_cleared_once() -> None:
    run = suspected()
    assert run.incident.validate(CLEAR, ACME) == "confirmed"
    assert run.incident.validate(CLEAR, ACME) is None
    assert run.feel(*[True] * 4, *[False] * (CLEAN_SECONDS + 3)) == ["cleared"]


def test_a_suspicion_that_no_validation_confirmed_is_dismissed() -> None:
    run = suspected()
    assert run.incident.validate(HEALTHY, ACME) is None
    assert run.feel(*[False] * CLEAN_SECONDS) == ["dismissed"]


def test_a_node_that_is_validated_healthy_twice_is_cleared_though_its_job_is_still_slow() -> None:
    incident = suspected().incident
    assert [incident.validate(shown, ACME) for shown in (CLEAR, FAINT, HEALTHY, HEALTHY)] == [
        "confirmed", None, None, "cleared",
    ]  # fmt: skip


def test_the_pauses_between_validations_grow() -> None:
    incident = suspected().incident
    asked = [t for t in range(100) if incident.wants_validation(float(t))]
    gaps = [b - a for a, b in pairwise(asked)]
    assert gaps[0] >= FIRST_PAUSE_SECONDS and gaps == sorted(gaps)


def test_a_calm_run_is_never_validated() -> None:
    run = OneRank()
    run.feel(False, True, False)
    assert not run.incident.wants_validation(1e9)


@given(st.lists(st.one_of(st.booleans(), st.sampled_from(["slow", "healthy"])), max_size=60))
def test_confirmed_and_cleared_alternate(events: list[bool | str]) -> None:
    run, seen = OneRank(), list[IncidentState]()
    for event in events:
        if isinstance(event, str):
            change = run.incident.validate(CLEAR if event == "slow" else HEALTHY, ACME)
            seen += [change] if change else []
        else:
            seen += run.feel(event)
    seen = [change for change in seen if change in (CONFIRMED, CLEARED)]
    assert all(change == ("confirmed", "cleared")[i % 2] for i, change in enumerate(seen))


def test_validations_add_up_and_healthy_ones_count_against_slow_ones() -> None:
    incident = suspected().incident
    assert incident.validate(FAINT, ACME) is None
    assert incident.validate(FAINT, ACME) == "confirmed"
    forgiven = suspected().incident
    assert [forgiven.validate(shown, ACME) for shown in (FAINT, HEALTHY, HEALTHY, FAINT)] == [None] * 4


def test_a_new_suspicion_starts_without_evidence() -> None:
    run = suspected()
    run.incident.validate(FAINT, ACME)
    run.feel(*[False] * CLEAN_SECONDS, True, True)
    assert run.incident.state == "suspected"
    assert run.incident.validate(FAINT, ACME) is None


def test_an_undecided_suspicion_is_validated_again_soon() -> None:
    incident = suspected().incident
    incident.validate(FAINT, ACME)
    assert incident.wants_validation(100.0)
    assert incident.wants_validation(100.0 + UNDECIDED_PAUSE_SECONDS)
