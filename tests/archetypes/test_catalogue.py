from __future__ import annotations

import pytest

from pharoah_archetypes import catalogue, nearest
from pharoah_archetypes.catalogue import similarity
from pharoah_archetypes.remedies import remedies, remedy
from pharoah_archetypes.vocabulary import vocabulary


@pytest.mark.parametrize("entry", catalogue().values(), ids=str)
def test_an_archetype_is_nearest_to_itself(entry: object) -> None:
    found, score = nearest(entry.grammar)  # type: ignore[attr-defined]
    assert found == entry
    assert score == pytest.approx(1.0)


@pytest.mark.parametrize("entry", catalogue().values(), ids=str)
def test_grammars_speak_the_vocabulary(entry: object) -> None:
    words = entry.grammar.replace("(", " ").replace(")+", " ").split()  # type: ignore[attr-defined]
    assert {w for w in words if not w.endswith(":")} <= set(vocabulary().classes.values())


def test_similarity_is_symmetric_and_zero_for_nothing_in_common() -> None:
    assert similarity("fwd: gemm act", "fwd: conv") == similarity("fwd: conv", "fwd: gemm act")
    assert similarity("gemm gemm gemm", "conv conv conv") == 0


def test_a_remedy_of_a_newer_provider_reads_as_nothing() -> None:
    assert remedy(60_000) == ""
    assert all(remedies().values())
