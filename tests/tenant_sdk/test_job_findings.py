"""Findings that come while a job runs."""

from __future__ import annotations

from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict
from pharoah.sidecar.check import MAX_OF_CODE, JobCheck
from pharoah_protocol.vocabulary import FindingSeverity


def test_a_month_of_ranks_that_wait_leaves_the_newest_findings() -> None:
    verdicts: list[Verdict] = []
    check = JobCheck(bytes(16), Settings(), verdicts.append)
    other = Finding(FindingSeverity.WARN, "rank 1 does not run what rank 0 runs", code="rank-differs")
    check.add_findings(other)
    for number in range(1000):
        check.add_findings(Finding(FindingSeverity.WARN, f"rank 1 waits in collective {number}", code="rank-waits"))
    found = check.verdict.findings
    assert found[0] == other
    assert [one.what for one in found[1:]] == [
        f"rank 1 waits in collective {n}" for n in range(1000 - MAX_OF_CODE, 1000)
    ]
    assert len(verdicts) == 1001, "everybody hears of each of them"
