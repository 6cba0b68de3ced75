"""The verdict on one job: asked before the launch or later, and completed by what is seen while the job runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict, unknown
from pharoah.findings.other_than_checked import OTHER_THAN_CHECKED
from pharoah.sidecar.rank_comparison import RankComparison, is_staged
from pharoah.sidecar.verdict_client import VerdictClient
from pharoah_archetypes import Fingerprint, differences, parse
from pharoah_protocol.vocabulary import VerdictStatus

LATE_LEAD_SECONDS = 1.5
"""A late question is prepared this long before it is sent: at half a second, when no report leaves, and longer than the
preparation takes (at most 0.3 s without libsodium, `batch_client_seconds_python` of `python -m evaluation privacy`)."""


MAX_OF_CODE = 8
"""Findings of one code that are kept, the newest: ranks that wait again and again are a finding each time, and all of
them must fit into a packet."""


class JobCheck:
    """Holds the verdict and whatever changes it. Owns one task between `launch` and `end`."""

    def __init__(self, run_id: bytes, settings: Settings, changed: Callable[[Verdict], None]) -> None:
        """`changed` is called with the verdict whenever it changes after the launch."""
        self._run_id = run_id.hex()
        self._settings = settings
        self._changed = changed
        self._ranks = RankComparison()
        self.asked = False
        """Whether the job was asked about, or a rank is dry-running it to ask."""
        self._captured: Fingerprint | None = None
        """A real step of a job that could not be dry-run."""
        self._compiled = False
        """Whether the captured step was compiled, so that it does not show its structure either."""
        self._late: asyncio.Task[None] | None = None
        self._noted: list[Finding] = []
        self.client = VerdictClient(self._run_id, settings)
        self.verdict = Verdict(VerdictStatus.PENDING, reason="no rank has asked yet", run_id=self._run_id)

    @property
    def serves(self) -> bool:
        """Whether the job computes answers and trains nothing, as far as it is known."""
        return self.client.checked is not None and self.client.checked.serves

    def expect(self, ranks: int) -> None:
        """A rank has reported how many ranks this node has."""
        self._ranks.expect(ranks)

    def claim_dry_run(self) -> bool:
        """Whether the caller is the first that can dry-run the job; then it has to."""
        first, self.asked = not self.asked, True
        return first

    async def ask(self, fingerprint: str, pending: str = "") -> Verdict:
        """Ask for a verdict about a fingerprint (JSON); without one, `pending` is the reason."""
        self.asked = True
        verdict = await self.client.check(fingerprint, pending)
        self.verdict = replace(verdict, findings=(*verdict.findings, *self._noted))
        return self.verdict

    def note(self, finding: Finding) -> None:
        """What is true of this machine, whatever the verdict: also of one that is asked for later."""
        self._noted.append(finding)
        self.add_findings(finding)

    def add_launch_findings(self, *findings: Finding) -> None:
        """What this machine found out before the launch; it changes the status."""
        self.verdict = self.verdict.with_findings(*findings)

    def add_findings(self, *findings: Finding) -> None:
        """What is found while the job runs: the status of its launch stays as it was."""
        new = tuple(finding for finding in findings if finding not in self.verdict.findings)
        if new:
            self._set(replace(self.verdict, findings=_newest_of_each([*self.verdict.findings, *new])))

    def launch(self, join_time: float) -> None:
        """The job has started: accept the offer, now or when a real step could be asked about.

        `join_time` is when the run joins, in monotonic seconds.
        """
        if self.verdict.status == VerdictStatus.PENDING:
            self._late = self._late or asyncio.create_task(self._ask_late(join_time))
        else:
            self.client.decide(accept=True)

    def capture(self, rank: int, step: Fingerprint, operators: frozenset[str]) -> None:
        """A rank has captured a real step: it answers a pending verdict, checks an early one, and is compared with the
        steps of the other ranks."""
        compiled = "compiled" in step.features
        if self.verdict.status == VerdictStatus.PENDING and compiled:
            reason = f"{self.verdict.reason}; and a compiled step does not show its structure"
            self._compiled = True
            self._set_late(unknown(reason, self._run_id))
        elif self.verdict.status == VerdictStatus.PENDING:
            self._captured = self._captured or step
        elif rank and self.client.checked and is_staged(parse(self.client.checked.grammar)):
            pass  # another stage of the pipeline than the one that was checked
        elif self.client.checked and (difference := _difference(self.client.checked, step, compiled)):
            self.add_findings(OTHER_THAN_CHECKED.create(difference=difference))
        self.add_findings(*self._ranks.add(rank, step, operators))

    async def end(self) -> None:
        """Stop asking, and send the last message about the offer."""
        if self._late:
            self._late.cancel()
        await self.client.end()

    async def close(self) -> None:
        """After the last message of the run: close the channel, and keep what the verdict rests on."""
        await self.client.close()

    async def _ask_late(self, join_time: float) -> None:
        """Ask at a multiple of a fixed time after the run has joined, and ask also when there is nothing to ask.

        The provider must not see how long the job took to load, nor that its steps show nothing, nor how long the
        question took to prepare: it is prepared at a fixed time before.
        """
        every = self._settings.late_ask_seconds
        at, known = join_time, False
        while not known:
            at += every
            await _sleep_until(at - min(LATE_LEAD_SECONDS, every / 2))
            known = self._captured is not None or self._compiled
        prepared = self.client.prepare(self._captured)
        await _sleep_until(at)
        verdict = await self.client.ask(prepared)
        if prepared.fingerprint is not None or prepared.flaw:
            self._set_late(verdict)
        self.client.decide(accept=True)

    def _set_late(self, verdict: Verdict) -> None:
        """A verdict in place of the pending one, whose findings stay: this machine has found them out since."""
        self._set(replace(verdict, findings=_newest_of_each([*verdict.findings, *self.verdict.findings])))

    def _set(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self._changed(verdict)


async def _sleep_until(at: float) -> None:
    """Wait until a time on the monotonic clock."""
    await asyncio.sleep(max(0.0, at - time.monotonic()))


def _difference(checked: Fingerprint, step: Fingerprint, compiled: bool) -> str:
    """How the operators of a real step differ from those of the dry run; empty when they do not."""
    if compiled:
        same = checked.compute == step.compute
        return "" if same else "it has other kinds of contraction, or its collectives come in another order"
    if checked.archetype == step.archetype:
        return ""
    return "; ".join(differences(parse(checked.grammar), parse(step.grammar))[:3]) or "the number of nested repeats"


def _newest_of_each(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of which there are not MAX_OF_CODE newer ones of the same code, in their order."""
    found: list[Finding] = []
    of_code = Counter[str]()
    for finding in reversed(findings):
        of_code[finding.code] += 1
        if of_code[finding.code] <= MAX_OF_CODE:
            found.insert(0, finding)
    return tuple(found)
