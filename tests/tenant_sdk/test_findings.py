"""The registry of findings: codes that scripts rely on, their documentation, and findings of other distributions."""

from __future__ import annotations

import string
import sys
from pathlib import Path

import pytest

from pharoah._finding_kind import GROUP, FindingKind, finding_kinds, findings_table
from pharoah.findings.rank_differs import RANK_DIFFERS
from pharoah_protocol.vocabulary import FindingSeverity
from tests.harness.plugins import write_plugin

PLUGIN = """
from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

ENTRY = FindingKind("quota-low", FindingSeverity.WARN, "only {hours} GPU hours are left", "Ask for more.")
"""


def test_the_documentation_lists_every_code() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tenant" / "verdicts.md").read_text()
    assert findings_table() in text, "paste what `pharoah._finding_kind.findings_table()` gives"


def test_every_code_is_a_name_and_every_text_a_format() -> None:
    for kind in finding_kinds():
        assert kind.help.endswith("."), kind.code
        names = [name for _, name, _, _ in string.Formatter().parse(kind.text) if name]
        assert kind.create(**dict.fromkeys(names, "x")).code == kind.code
    with pytest.raises(ValueError, match="finding code 'Has Space'"):
        FindingKind("Has Space", FindingSeverity.INFO, "", "")


def test_a_finding_carries_its_code_and_the_values_of_its_case() -> None:
    finding = RANK_DIFFERS.create(difference="rank 2 does not run what ranks 0, 1 run", evidence="step 4")
    assert (finding.code, finding.severity, finding.evidence) == ("rank-differs", "warn", "step 4")
    assert finding.what == "rank 2 does not run what ranks 0, 1 run"
    assert RANK_DIFFERS.create(difference="", severity=FindingSeverity.INFO).severity == "info"
    with pytest.raises(KeyError):
        RANK_DIFFERS.create()


def test_another_distribution_adds_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(write_plugin(tmp_path, GROUP, PLUGIN))
    try:
        kinds = finding_kinds()
        assert kinds["quota-low"].create(hours=3).what == "only 3 GPU hours are left"
        assert "rank-differs" in kinds
    finally:
        sys.modules.pop("plugin_of_a_test", None)
