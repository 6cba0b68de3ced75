from __future__ import annotations

from itertools import combinations

import pytest

from pharoah_archetypes import Archetype, catalogue, communication_patterns, nearest, parse, pattern_of
from pharoah_archetypes.inventory import inventory
from pharoah_archetypes.remedies import remedies, remedy
from pharoah_archetypes.rungs import RUNGS, Rung


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.id)
def test_an_archetype_is_nearest_to_itself(entry: Archetype) -> None:
    assert nearest(entry.skeleton)[0] == (entry, 1.0)


def test_no_two_entries_are_one_archetype() -> None:
    for one, other in combinations(catalogue().values(), 2):
        assert one.skeleton != other.skeleton, f"{one.id} and {other.id}"


def test_no_two_communication_patterns_are_one() -> None:
    for one, other in combinations(communication_patterns().values(), 2):
        assert one.skeleton != other.skeleton, f"{one.id} and {other.id}"


@pytest.mark.parametrize("entry", communication_patterns().values(), ids=lambda entry: entry.id)
def test_a_job_has_the_pattern_of_what_it_sends_whatever_it_computes(entry: Archetype) -> None:
    lines = entry.grammar.splitlines()
    computing = [line.replace(": ", ": grad " if line.startswith("bwd") else ": ") for line in lines]
    if not lines[0].startswith("fwd"):
        computing = ["fwd: gemm", *computing]
    assert pattern_of(parse("\n".join(computing))) == entry
    assert pattern_of(parse("fwd: gemm act gemm\nbwd: grad")) is None


def test_the_catalogue_knows_the_common_ones() -> None:
    assert len(catalogue()) >= 30 and len(communication_patterns()) >= 12
    for entry in (*catalogue().values(), *communication_patterns().values()):
        assert entry.mechanism and entry.references, entry.id


def test_software_that_a_rung_holds_is_in_every_more_specific_rung() -> None:
    """What one device computes is no part of what is sent, and the other way round."""
    for software in inventory():
        holds = [rung for rung in RUNGS if rung not in (Rung.ONE_DEVICE, Rung.COLLECTIVES)]
        assert [rung for rung in software.rungs if rung in holds] == holds[: len(set(software.rungs) & set(holds))]
        assert software.least is None or software.least in software.rungs


def test_a_remedy_of_a_newer_provider_reads_as_nothing() -> None:
    assert remedy(60_000) == ""
    assert all(remedies().values())
