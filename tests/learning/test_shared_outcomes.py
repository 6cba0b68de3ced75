"""Shared outcomes: rows are right as long as at most a fifth of the organisations send false outcomes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.evidence import OutcomeReport
from pharoah_learning.shared_outcomes import learn_shared_outcomes


def votes(*organisations: tuple[int, bool], name: str = "ab", start: int = 0, runs: int = 1) -> list[OutcomeReport]:
    return [
        OutcomeReport(bytes([start, number, run]), 7, name, f"o{number}", "ctx", failed)
        for number, failed in organisations
        for run in range(runs)
    ]


def test_enough_organisations_make_a_warning_and_nothing_more() -> None:
    (row,) = learn_shared_outcomes(votes(*((n, True) for n in range(7))))
    assert (row.kind, row.severity, row.failures, row.runs, row.group_id) == ("name", "warn", 7, 7, "ctx")
    assert learn_shared_outcomes(votes(*((n, True) for n in range(6)))) == [], "6 - 20 % of 6 is less than five"


def test_one_organisation_has_one_voice_however_often_it_runs() -> None:
    assert learn_shared_outcomes(votes((1, True), runs=200)) == []
    many = [OutcomeReport(bytes([n, 1]), 7, "ab", "one", "ctx", True) for n in range(100)]
    assert learn_shared_outcomes(many) == []


def test_names_contexts_and_periods_are_counted_apart() -> None:
    four = votes(*((n, True) for n in range(4)))
    elsewhere = [OutcomeReport(bytes([9, n]), 8, "ab", f"o{n}", "ctx", True) for n in range(4)]
    assert learn_shared_outcomes([*four, *elsewhere, *votes(*((n, True) for n in range(4)), name="cd", start=5)]) == []


@given(st.integers(1, 200), st.floats(0, 0.1), st.data())
def test_a_fifth_of_false_reports_can_neither_make_nor_hide_a_row(
    reporting: int, usual: float, data: st.DataObject
) -> None:
    """Healthy jobs fail for at most a tenth of the honest; broken ones for all of them."""
    hostile = int(0.2 * reporting)
    honest = reporting - hostile
    own_faults = data.draw(st.integers(0, int(usual * honest)))
    healthy = [(n, n < own_faults) for n in range(honest)] + [(honest + n, True) for n in range(hostile)]
    assert learn_shared_outcomes(votes(*healthy)) == []
    broken = [(n, True) for n in range(honest)] + [(honest + n, False) for n in range(hostile)]
    if honest - 0.2 * reporting >= 5:
        assert len(learn_shared_outcomes(votes(*broken))) == 1
