"""One run's question to the provider: who is asked, about what, what came of it, and what is kept."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Any

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah._verdict import Verdict, unknown
from pharoah.findings.outcome_not_shared import OUTCOME_NOT_SHARED
from pharoah.findings.provider_misbehaved import PROVIDER_MISBEHAVED
from pharoah.findings.provider_not_verified import PROVIDER_NOT_VERIFIED
from pharoah.sidecar.agent_client import NodeAnswer, ask_node
from pharoah.sidecar.evidence import Evidence
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.pseudonym_client import PseudonymClient
from pharoah.sidecar.verdict_rules import plan_of, verdict_from_rows
from pharoah_archetypes import Fingerprint, FingerprintError
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.pseudonyms import Pseudonym
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.vocabulary import Privacy, VerdictStatus

log = logging.getLogger("pharoah.sidecar")


LONGEST_SECONDS = 12.0
"""Seconds that all calls about one job may take; callers wait longer for the verdict (4 timeouts, or CHECK_SECONDS)."""
ROUND_SECONDS = 2.0
"""A run joins at a multiple of this after the answer: what was made of the answer takes shorter or longer."""


class VerdictClient:
    """Asks once. Whatever a provider answers, there is a verdict, and the job starts."""

    def __init__(self, run_id: str, settings: Settings) -> None:
        self._run_id, self._settings = run_id, settings
        self._exchange: ExchangeClient | None = None
        self._evidence = Evidence(settings)
        self._record: dict[str, Any] = {}
        """What the verdict rests on."""
        self._deciding: asyncio.Task[None] | None = None
        self.provider: ProviderConnection | None = None
        self.node: NodeAnswer | None = None
        self.checked: Fingerprint | None = None
        """What the verdict is about; None while the job's structure is unknown."""
        self.plan = PLAIN
        """How the job is to be watched."""
        self._unnamed = ""
        """Why the job has no name although its user shares outcomes."""
        self.name: Pseudonym | None = None
        """The job's pseudonym, where its user shares outcomes."""

    async def connect(self) -> Verdict | None:
        """Get what a run needs to join: the provider and a ticket. Gives the verdict when one cannot be had."""
        try:
            await self._connect()
        except UnknownReason as error:
            return unknown(str(error), self._run_id)
        return None

    async def _connect(self) -> tuple[ProviderConnection, NodeAnswer]:
        """Raises UnknownReason."""
        if not self._settings.endpoint:
            raise UnknownReason("no provider is configured (PHAROAH_ENDPOINT)")
        self.provider = self.provider or ProviderConnection(self._settings)
        self.node = await self._fresh_node()
        return self.provider, self.node

    async def check(self, fingerprint: str, pending: str) -> Verdict:
        """The verdict about a fingerprint (JSON); without one, `pending` is the reason why it has to wait."""
        began = time.perf_counter()
        try:
            provider, node = await self._connect()
            if not fingerprint:
                return Verdict(VerdictStatus.PENDING, reason=pending, run_id=self._run_id)
            async with asyncio.timeout(min(LONGEST_SECONDS, 4 * self._settings.timeout_seconds)):
                verdict = await self._ask(Fingerprint.from_json(fingerprint), provider, node)
            return replace(verdict, latency_ms=1000 * (time.perf_counter() - began))
        except (UnknownReason, FingerprintError) as error:
            return unknown(str(error), self._run_id)
        except VerificationError as error:
            return self._rejected(error)
        except TimeoutError:
            return unknown("the provider did not answer in time", self._run_id)
        except Exception as error:
            log.exception("no verdict")
            return unknown(f"the sidecar failed ({type(error).__name__})", self._run_id)

    async def cover(self) -> None:
        """Ask about nothing, where a job has nothing to ask."""
        if self.provider is not None and self.node is not None:
            try:
                self.node = await self._fresh_node()
                self._exchange = self._exchange or ExchangeClient(self.provider, self._settings)
                async with asyncio.timeout(LONGEST_SECONDS):
                    await self._named(None, self.provider, self._exchange)
                    await self._exchange.cover(self.node.ticket)
            except Exception as error:  # noqa: BLE001 - whatever a provider does, what follows must not depend on it
                log.info("nothing was asked: %s", error)

    def until_unrelated(self) -> float:
        """Seconds until a time that does not depend on how long we were busy with the answer."""
        if self._exchange is None or not self._exchange.answered_at:
            return 0.0
        return ROUND_SECONDS - (time.monotonic() - self._exchange.answered_at) % ROUND_SECONDS

    def decide(self, accept: bool) -> None:
        """Send whether the offered node is taken. Runs as a task that `end` waits for."""
        if self._exchange is not None and self._deciding is None:
            self._deciding = asyncio.create_task(self._exchange.decide(accept=accept))

    async def end(self) -> None:
        """See the decision out, and keep what the verdict rests on.

        Only now: right after the answer, how long we are busy must not depend on it.
        """
        self.decide(accept=False)
        work = [self._deciding] if self._deciding else []
        if self._record:
            work.append(asyncio.create_task(asyncio.to_thread(self._evidence.answer, self._run_id, self._record)))
        if work:
            await asyncio.wait(work, timeout=self._settings.shutdown_timeout_seconds / 2)

    async def _fresh_node(self) -> NodeAnswer:
        """Tickets last ten minutes, and a job may be asked about long after its launch. Raises UnknownReason."""
        return await ask_node(self._settings.node_socket, self._settings.timeout_seconds)

    async def _ask(self, fingerprint: Fingerprint, provider: ProviderConnection, node: NodeAnswer) -> Verdict:
        self._exchange = self._exchange or ExchangeClient(provider, self._settings)
        self.name = await self._named(fingerprint, provider, self._exchange)
        answer = await self._exchange.ask(fingerprint, node.ticket, self.name)
        self.checked, self.plan = fingerprint, plan_of(answer)
        verdict = verdict_from_rows(answer, self._run_id, hashed=self._settings.privacy == Privacy.HASHED)
        if self._unnamed:
            verdict = verdict.with_findings(OUTCOME_NOT_SHARED.found(reason=self._unnamed))
        self._record = {**answer.record, "verdict": verdict.status, "fingerprint": fingerprint.to_json()}
        return verdict

    async def _named(
        self, fingerprint: Fingerprint | None, provider: ProviderConnection, exchange: ExchangeClient
    ) -> Pseudonym | None:
        """The job's name, where its user shares outcomes; without one nothing is shared. Of no job, no name."""
        if not self._settings.share_outcomes:
            return None
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await exchange.epoch()  # reads the log, which carries the provider's key of names
                namer = PseudonymClient(provider, self._settings)
                try:
                    return await namer.name(fingerprint, exchange.log)
                finally:
                    await namer.close()
        except TimeoutError:
            self._unnamed = "provider and auditor did not make its name in time"
        except (UnknownReason, ValueError, grpc.aio.AioRpcError) as error:
            self._unnamed = str(error)
        return None

    def _rejected(self, error: VerificationError) -> Verdict:
        """The verdict after an answer that did not verify; evidence of misbehaviour is kept."""
        log.warning("the provider's answer is rejected: %s", error)
        verdict = unknown(f"the provider's answer is rejected: {error}", self._run_id)
        path = self._evidence.misbehaviour(error.evidence) if error.evidence else None
        if path is None:
            return verdict
        evidence = f"pharoah audit {path}"
        if self.provider is not None:
            try:
                prove(error.evidence or {}, self.provider.key.public_bytes_raw())
            except InvalidEvidenceError as unproven:
                return verdict.with_findings(PROVIDER_NOT_VERIFIED.found(reason=unproven, evidence=evidence))
        return verdict.with_findings(PROVIDER_MISBEHAVED.found(evidence=evidence))
