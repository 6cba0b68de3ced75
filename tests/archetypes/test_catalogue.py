from __future__ import annotations

from itertools import combinations

import pytest

from pharoah_archetypes import Archetype, catalogue, nearest
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.remedies import remedies, remedy
from pharoah_archetypes.rungs import RUNGS


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.id)
def test_an_archetype_is_nearest_to_itself(entry: Archetype) -> None:
    assert nearest(entry.skeleton)[0] == (entry, 1.0)


def test_no_two_entries_are_one_archetype() -> None:
    for one, other in combinations(catalogue().values(), 2):
        assert one.skeleton != other.skeleton, f"{one.id} and {other.id}"


def test_the_catalogue_knows_the_common_ones() -> None:
    assert len(catalogue()) >= 16
    assert all(entry.mechanism and entry.references for entry in catalogue().values())


def test_a_rung_holds_the_software_of_every_rung_below() -> None:
    for software in inventory():
        assert software.rungs == RUNGS[: len(software.rungs)]


def test_a_remedy_of_a_newer_provider_reads_as_nothing() -> None:
    assert remedy(60_000) == ""
    assert all(remedies().values())
