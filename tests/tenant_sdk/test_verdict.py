from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pharoah import Finding, Verdict
from pharoah.sidecar.exchange_client import Answer, Match
from pharoah.sidecar.log_client import ServedEpoch
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_protocol.tables.epoch_head import EpochHead
from pharoah_protocol.tables.rows import VerdictRow
from pharoah_protocol.vocabulary import Outcome, Rung, Severity

SERVED = ServedEpoch(EpochHead(3, 2, 0, 1, ()), b"", b"", b"", b"", frozenset())
OK = VerdictRow(Severity.OK, Outcome.OK, Rung.EXACT, 0, 9, 0, 40)
MEMORY = VerdictRow(Severity.BLOCK, Outcome.MEMORY, Rung.EXACT, 5, 5, 0, 25, remedy=1)


def judged(*matches: tuple[str, str, VerdictRow]) -> Verdict:
    return verdict_from_rows(Answer(SERVED, tuple(Match("arch", *match) for match in matches), 4000), "ab")


def near_duplicates(*rows: VerdictRow, scope: str = "server") -> Verdict:
    return verdict_from_rows(Answer(SERVED, tuple(Match("band", "minor", scope, row) for row in rows), 4000), "ab")


def test_a_verdict_is_not_true_or_false() -> None:
    with pytest.raises(TypeError, match=r"\.ok or \.blocking"):
        bool(Verdict("unknown"))


def test_a_verdict_survives_its_file(tmp_path: Path) -> None:
    verdict = Verdict(
        "warn", findings=(Finding("warn", "slow"),), rung="exact", runs=5, sent={"inputs": 128, "bytes": 1}
    )
    verdict.write(str(tmp_path / "v.json"))
    assert Verdict.from_dict(json.loads((tmp_path / "v.json").read_text())) == verdict
    assert [path.name for path in tmp_path.iterdir()] == ["v.json"]


def test_nothing_opened_is_unknown_never_compatible() -> None:
    assert judged().status == "unknown"


def test_an_architecture_known_with_other_software_is_unknown() -> None:
    verdict = judged(("major", "server", VerdictRow(Severity.OK, Outcome.OK, Rung.MAJOR, 0, 99, 0, 0)))
    assert verdict.status == "unknown"
    assert "software" in verdict.reason


ERROR = replace(MEMORY, outcome=Outcome.ERROR)
SLOW = replace(OK, severity=Severity.WARN, outcome=Outcome.HANG, failures=4)


@pytest.mark.parametrize(
    ("matches", "status", "code"),
    [
        ([("one-device", OK)], "compatible", "known-on-one-device"),
        ([("one-device", OK), ("collectives", OK)], "compatible", "known-in-parts"),
        ([("one-device", OK), ("major", OK)], "compatible", "known-on-one-device"),
        ([("one-device", ERROR), ("collectives", OK)], "incompatible", "learned-error"),
        ([("one-device", OK), ("collectives", SLOW)], "warn", "learned-hang"),
        ([("one-device", ERROR), ("collectives", SLOW)], "incompatible", "learned-error"),
        ([("collectives", SLOW)], "warn", "learned-hang"),
        ([("minor", OK), ("one-device", ERROR), ("collectives", SLOW)], "compatible", "known-at-other-sizes"),
    ],
)
def test_what_is_known_of_the_parts_of_a_distributed_job(
    matches: list[tuple[str, VerdictRow]], status: str, code: str
) -> None:
    verdict = judged(*((rung, "server", row) for rung, row in matches))
    assert (verdict.status, verdict.findings[0].code) == (status, code)
    assert max(len(line) for line in verdict.render().splitlines()) <= 80


def test_what_is_sent_alone_makes_no_job_compatible() -> None:
    verdict = judged(("collectives", "server", OK), ("collectives", "device", OK))
    assert verdict.status == "unknown" and "compute" in verdict.reason


def test_a_finding_names_its_evidence_at_the_provider() -> None:
    named = replace(ERROR, evidence=bytes.fromhex("0123456789abcdef"))
    assert "evidence 0123456789abcdef" in judged(("exact", "server", named)).findings[0].evidence


def test_the_most_specific_rung_decides() -> None:
    assert judged(("minor", "server", OK), ("exact", "server", MEMORY)).status == "incompatible"
    assert judged(("exact", "device", MEMORY), ("minor", "server", OK)).status == "compatible"


def test_an_incompatible_verdict_carries_counts_base_and_a_remedy() -> None:
    finding = judged(("exact", "server", MEMORY)).findings[0]
    assert "5/5" in finding.evidence and "0/25" in finding.evidence
    assert "fused attention" in finding.remedy


def test_two_bands_that_agree_warn_and_never_more() -> None:
    verdict = near_duplicates(MEMORY, MEMORY)
    assert verdict.status == "warn" and verdict.rung == "near-duplicate"
    assert [finding.severity for finding in verdict.findings] == ["warn"]
    assert "near duplicate" in verdict.findings[0].what
    assert max(len(line) for line in verdict.render().splitlines()) <= 80


def test_one_band_says_nothing_and_good_ones_never_make_a_job_compatible() -> None:
    assert near_duplicates(MEMORY).status == near_duplicates(MEMORY, OK).status == "unknown"
    good = near_duplicates(OK, OK)
    assert good.status == "unknown" and "near duplicates" in good.findings[0].what


def test_what_is_known_of_the_job_itself_beats_its_like() -> None:
    matches = (Match("arch", "exact", "device", OK), *(Match("band", "minor", "server", MEMORY),) * 3)
    assert verdict_from_rows(Answer(SERVED, matches, 0), "").status == "compatible"


def test_memory_at_other_sizes_is_a_warning_about_other_sizes() -> None:
    row = VerdictRow(Severity.WARN, Outcome.MEMORY, Rung.MINOR, 5, 10, 0, 30)
    verdict = judged(("minor", "server", row))
    assert verdict.status == "warn"
    assert "other sizes" in verdict.findings[0].what


def test_a_rendered_verdict_fits_a_terminal() -> None:
    text = judged(("exact", "server", MEMORY)).render()
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "INCOMPATIBLE" in text and "remedy" in text


def test_the_json_of_a_verdict_holds_its_findings() -> None:
    verdict = judged(("exact", "server", MEMORY))
    assert json.loads(verdict.to_json())["findings"][0]["what"] == asdict(verdict)["findings"][0]["what"]


def test_what_is_known_of_this_very_node_beats_what_is_known_of_such_nodes() -> None:
    on_node = replace(MEMORY, outcome=Outcome.NAN, failures=10, runs=10, base_runs=40, remedy=8)
    similar = replace(on_node, severity=Severity.WARN, rung=Rung.MINOR)
    matches = (Match("arch", "exact", "server", OK), Match("node", "minor", "server", similar))
    verdict = verdict_from_rows(Answer(SERVED, matches, 4000), "ab")
    assert verdict.status == "warn"
    verdict = verdict_from_rows(Answer(SERVED, (*matches, Match("node", "exact", "server", on_node)), 4000), "ab")
    assert verdict.status == "incompatible" and verdict.runs == 10
    (finding,) = verdict.findings
    assert finding.evidence.startswith("10/10 comparable runs on this very node; base 0/40")
    assert "another node of the same configuration" in finding.remedy
