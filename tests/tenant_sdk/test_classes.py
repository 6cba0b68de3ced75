"""Equivalence classes of model families, as the catalogue states them, in both directions; dry steps, tiny models.

`python -m evaluation capture` does the same with more variations, and with real steps.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.models.zoo import FAMILIES
from pharoah_archetypes import Archetype, catalogue

VARIATIONS = "base,depth 1,several"
# 75 dry steps in one process, which all tests share.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def archetypes() -> dict[str, dict[str, str]]:
    """Archetype by family and variation."""
    names = ",".join(family.name for family in FAMILIES)
    command = [sys.executable, "-m", "evaluation.fingerprints.worker", "fake", names, VARIATIONS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout.splitlines()[-1])
    return {
        family: {name: found["archetype"] if isinstance(found, dict) else found for name, found in rows.items()}
        for family, rows in seen.items()
    }


@pytest.mark.parametrize("entry", [e for e in catalogue().values() if e.variants], ids=lambda entry: entry.id)
def test_every_family_of_an_entry_has_its_archetype(entry: Archetype, archetypes: dict[str, dict[str, str]]) -> None:
    for family in entry.variants:
        for variation, found in archetypes[family].items():
            assert found == entry.skeleton.archetype, f"{family}, {variation}"


def test_every_family_stands_in_one_entry() -> None:
    named = [family for entry in catalogue().values() for family in entry.variants]
    assert sorted(named) == sorted(family.name for family in FAMILIES)
