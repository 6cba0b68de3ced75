"""One run's question to the provider: who is asked, about what, what came of it, and what is kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
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
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import VerificationError
from pharoah.sidecar.message_times import JOIN_SECONDS, MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.pseudonym_client import PseudonymClient
from pharoah.sidecar.question import Question, prepare
from pharoah.sidecar.verdict_rules import plan_of, verdict_from_rows
from pharoah_archetypes import Fingerprint, FingerprintError, size_position
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.pseudonyms import Pseudonym, PseudonymQuery
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.vocabulary import Privacy, VerdictStatus

log = logging.getLogger("pharoah.sidecar")

MAX_SECONDS = 12.0
"""Seconds that all calls about one job may take; callers wait longer for the verdict (4 timeouts, or CHECK_SECONDS)."""


@dataclass(frozen=True)
class PreparedQuestion:
    """A question that is ready to be sent, and the job that it is about."""

    question: Question
    flaw: str = ""
    """Why nothing is asked about the job although it was examined; such a job sends a question about nothing."""

    @property
    def fingerprint(self) -> Fingerprint | None:
        """None for a question about nothing."""
        return self.question.fingerprint


class VerdictClient:
    """Asks once. Whatever a provider answers, there is a verdict, and the job starts.

    The steps of a question are the same, at the same times, for every job and also when a step fails.
    """

    def __init__(self, run_id: str, settings: Settings) -> None:
        self._run_id, self._settings = run_id, settings
        self.times = MessageTimes()
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
        if self._settings.no_provider:
            raise UnknownReason(self._settings.no_provider)
        self.provider = self.provider or ProviderConnection(self._settings)
        self.node = await self._fresh_node()
        return self.provider, self.node

    def prepare(self, fingerprint: Fingerprint | str | None) -> PreparedQuestion:
        """Everything of a question that takes a different time for each job; nothing is sent.

        A fingerprint may be JSON. None, and a fingerprint that cannot be used, become a question about nothing.
        """
        share, flaw = self._settings.share_outcomes, ""
        try:
            read = Fingerprint.from_json(fingerprint) if isinstance(fingerprint, str) else fingerprint
            return PreparedQuestion(prepare(read, share))
        except FingerprintError as error:
            flaw = str(error)
        except ValueError as error:  # a grammar that cannot be parsed, a token that is too long
            flaw = f"the fingerprint has no skeleton: {error}"
        return PreparedQuestion(prepare(None, share), flaw)

    async def check(self, fingerprint: str, pending: str) -> Verdict:
        """The verdict about a fingerprint (JSON); without one, `pending` is the reason why it has to wait."""
        if fingerprint:
            began = time.perf_counter()
            return await self.ask(self.prepare(fingerprint), began)
        failed = await self.connect()
        return Verdict(VerdictStatus.PENDING, reason=pending, run_id=self._run_id) if failed is None else failed

    async def ask(self, prepared: PreparedQuestion, began: float | None = None) -> Verdict:
        """The verdict about the job of a question that is ready; its latency counts from `began` (perf_counter)."""
        began = time.perf_counter() if began is None else began
        try:
            provider, node = await self._connect()
            async with asyncio.timeout(min(MAX_SECONDS, 4 * self._settings.timeout_seconds)):
                verdict = await self._ask(prepared, provider, node)
            return replace(verdict, latency_ms=1000 * (time.perf_counter() - began))
        except UnknownReason as error:
            return unknown(prepared.flaw or str(error), self._run_id)
        except VerificationError as error:
            return await self._reject(error)
        except TimeoutError:
            return unknown("the provider did not answer in time", self._run_id)
        except Exception as error:
            log.exception("no verdict")
            return unknown(f"the sidecar failed ({type(error).__name__})", self._run_id)

    def join_time(self) -> float:
        """When the run joins, in monotonic seconds: it does not depend on how long we were busy with the answer."""
        return self.times.next_time(JOIN_SECONDS)

    def decide(self, accept: bool) -> None:
        """Send whether the offered node is taken. Runs as a task that `end` waits for."""
        if self._exchange is not None and self._deciding is None:
            self._deciding = asyncio.create_task(self._exchange.decide(accept=accept))

    async def end(self) -> None:
        """See the decision out. Nothing is sent afterwards."""
        self.decide(accept=False)
        if self._deciding:
            await asyncio.wait([self._deciding], timeout=self._settings.shutdown_timeout_seconds / 2)

    async def close(self) -> None:
        """Close the channel, and keep what the verdict rests on.

        Only now: how long the record takes to write must not show in the time of any message, nor in that of the close.
        """
        if self.provider is not None:
            await self.provider.channel.close(None)
        if self._record:
            files = FileWork(self._settings.shutdown_timeout_seconds / 2)
            with contextlib.suppress(TimeoutError):
                await files.result(lambda: self._evidence.answer(self._run_id, self._record))

    async def _fresh_node(self) -> NodeAnswer:
        """Tickets last ten minutes, and a job may be asked about long after its launch. Raises UnknownReason."""
        settings = self._settings
        try:
            return await ask_node(settings.node_socket, settings.timeout_seconds, settings.service_users)
        finally:
            self.times.note_answer()  # the agent belongs to the provider

    async def _ask(self, prepared: PreparedQuestion, provider: ProviderConnection, node: NodeAnswer) -> Verdict:
        self._exchange = self._exchange or ExchangeClient(provider, self._settings, self.times)
        question = prepared.question
        if question.name is not None:
            name = await self._name(question.name, provider, self._exchange)
            self.name = name if prepared.fingerprint else None
            question = question.with_pseudonym(self.name)
        answer = await self._exchange.answer(question, node.ticket)
        if prepared.fingerprint is None:
            return unknown(prepared.flaw, self._run_id)
        self.checked, self.plan = prepared.fingerprint, plan_of(answer)
        hashed, size = self._settings.privacy == Privacy.HASHED, size_position(prepared.fingerprint.sizes)
        verdict = verdict_from_rows(answer, self._run_id, hashed=hashed, size=size)
        if self._unnamed:
            verdict = verdict.with_findings(OUTCOME_NOT_SHARED.create(reason=self._unnamed))
        self._record = {**answer.record, "verdict": verdict.status, "fingerprint": prepared.fingerprint.to_json()}
        return verdict

    async def _name(
        self, question: PseudonymQuery, provider: ProviderConnection, exchange: ExchangeClient
    ) -> Pseudonym | None:
        """The job's name, where its user shares outcomes; without one nothing is shared."""
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await exchange.epoch()  # reads the log, which carries the provider's key of names
                namer = PseudonymClient(provider, self._settings, self.times)
                try:
                    return await namer.name(question, exchange.log)
                finally:
                    await namer.close()
        except TimeoutError:
            self._unnamed = "provider and auditor did not make its name in time"
        except (UnknownReason, ValueError, grpc.aio.AioRpcError) as error:
            self._unnamed = str(error)
        return None

    async def _reject(self, error: VerificationError) -> Verdict:
        """The verdict after an answer that did not verify; evidence of misbehaviour is kept."""
        log.warning("the provider's answer is rejected: %s", error)
        verdict = unknown(f"the provider's answer is rejected: {error}", self._run_id)
        path = await self._keep(error.evidence) if error.evidence else None
        if path is None:
            return verdict
        evidence = f"pharoah audit {path}"
        if self.provider is not None:
            try:
                prove(error.evidence or {}, self.provider.key.public_bytes_raw())
            except InvalidEvidenceError as unproven:
                return verdict.with_findings(PROVIDER_NOT_VERIFIED.create(reason=unproven, evidence=evidence))
        return verdict.with_findings(PROVIDER_MISBEHAVED.create(evidence=evidence))

    async def _keep(self, evidence: Mapping[str, Any]) -> Path | None:
        """The file that keeps evidence; None when there is none in time."""
        try:
            return await FileWork(self._settings.timeout_seconds).result(lambda: self._evidence.misbehaviour(evidence))
        except TimeoutError:
            log.warning("evidence is not kept: the file system does not answer")
            return None
