"""What an incident is about, and what a tenant hears of it."""

from __future__ import annotations

import pytest

from pharoah_learning.models.cross_validation import Comparison
from pharoah_protocol.incident_states import CLEARED, CONFIRMED
from pharoah_protocol.vocabulary import Resource
from pharoah_provider.domain import IncidentKind, Subject, Transition
from pharoah_provider.monitoring.incident_advice import advice, slow_resource


def shown(**ratios: float) -> dict[str, list[Comparison]]:
    """Four validations of each benchmark, which took so many times as long as its level."""
    return {name: [Comparison(name, ratio, 1.0, 0.03, 0.06)] * 4 for name, ratio in ratios.items()}


@pytest.mark.parametrize(
    ("ratios", "resource"),
    [
        ({"gemm": 1.0, "memory": 1.0}, None),
        ({"gemm": 1.5, "memory": 1.5}, Resource.COMPUTE),  # whoever loses the processor copies more slowly as well
        ({"gemm": 1.25, "memory": 1.4}, Resource.COMPUTE),
        ({"gemm": 1.02, "memory": 1.4}, Resource.MEMORY_BANDWIDTH),
        ({"gemm": 1.0, "disk_write": 1.5}, Resource.STORAGE),
        ({"gemm": 1.0, "of_a_plugin_that_was_removed": 1.5}, None),
    ],
)
def test_the_benchmarks_that_became_slower_show_what_is_short(
    ratios: dict[str, float], resource: Resource | None
) -> None:
    assert slow_resource(shown(**ratios)) is resource


@pytest.mark.parametrize("kind", list(IncidentKind))
@pytest.mark.parametrize("resource", [None, *Resource])
def test_an_open_incident_of_every_kind_says_what_to_do_and_one_that_is_over_does_not(
    kind: IncidentKind, resource: Resource | None
) -> None:
    change = Transition("al-1", Subject.node("n1"), kind, CONFIRMED, bytes(16), "", "", 0.0, 0.0, 1.0, True, resource)
    found = advice(change)
    assert found.likely and found.action
    assert advice(change.change(CLEARED, 1.0, "")) == ("", "")
