"""The groups of tests that one worker runs: every name stands for tests that exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.groups import GROUPS, unit_of

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("beginning", GROUPS)
def test_a_group_names_tests_that_exist(beginning: str) -> None:
    file, _, name = beginning.partition("::")
    assert f"def {name}" in (ROOT / file).read_text()


def test_a_group_is_one_unit_and_another_test_is_its_own() -> None:
    assert {unit_of(f"tests/tenant_sdk/test_classes.py::test_one[{name}]") for name in "ab"} == {"classes"}
    assert unit_of("tests/tenant_sdk/test_log.py::test_one[a]") == "tests/tenant_sdk/test_log.py::test_one[a]"
