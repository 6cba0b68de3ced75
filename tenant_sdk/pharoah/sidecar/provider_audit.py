"""Holding the provider to what it has signed: its log read anew, its tables fetched anew, kept answers opened again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.comparison.history import History
from pharoah.sidecar.evidence import Evidence, exchange_folder
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.file_work import FileWork
from pharoah.sidecar.log_client import ServedEpoch, VerificationError, read_witnesses
from pharoah.sidecar.message_times import MessageTimes
from pharoah.sidecar.provider_connection import ProviderConnection, reason
from pharoah.sidecar.table_cache import TableCache
from pharoah_archetypes.ladder import parts
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.tables.epoch_head import HeadError
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, open_rows, read_signed_answer
from pharoah_protocol.tables.outcome_test import tally
from pharoah_protocol.vocabulary import EndState
from pharoah_protocol.voprf import protocol
from pharoah_protocol.voprf.group import GroupError
from pharoah_system.bounded_reading import read_json_file
from pharoah_system.trusted_paths import find_folder, is_own_file

ENOUGH = 20
"""Number of outcomes from which on the absence of an alarm means anything."""
JUDGED = ("ok", "failed")
"""End states that depend on the job and its node."""


@dataclass(frozen=True)
class Line:
    """One thing that was checked."""

    result: str
    """ok, FAIL, or - for what could not be checked or is not decided."""
    check: str
    detail: str


async def audit(settings: Settings) -> list[Line]:
    """Everything there is to check, in order. Raises UnknownReason when the provider cannot be asked."""
    provider = ProviderConnection(settings)
    try:
        lines = [*await _log(provider, settings)]
        if lines[-1].result == "FAIL":
            return lines
        served = await ExchangeClient(provider, settings).epoch()
        lines += await _tables(provider, settings, served)
        return [*lines, *_answers(settings, provider.key.public_bytes_raw()), _outcomes(settings)]
    except grpc.aio.AioRpcError as error:
        raise UnknownReason(reason(error)) from None
    finally:
        await provider.channel.close(None)


async def _log(provider: ProviderConnection, settings: Settings) -> list[Line]:
    """The whole log, by somebody who remembers nothing, and then by this machine's memory."""
    witnesses = read_witnesses(settings.witnesses_file)
    try:
        anew = ExchangeClient(provider, settings, remember=False)
        served = await anew.epoch()
        remembering = ExchangeClient(provider, settings)
        await remembering.epoch()
    except (VerificationError, HeadError) as error:
        return [_catch("log", error, settings)]
    text = f"{anew.log.frontier.size} entries, epoch {served.head.epoch} of release {served.head.release}; "
    text += "as remembered" if remembering.remembers else "nothing is remembered on this machine"
    if not witnesses:
        return [Line("ok", "log", text), Line("-", "witnesses", "none are set (PHAROAH_WITNESSES_FILE)")]
    return [Line("ok", "log", text), Line("ok", "witnesses", f"more than half of {len(witnesses)} have cosigned it")]


async def _tables(provider: ProviderConnection, settings: Settings, served: ServedEpoch) -> list[Line]:
    """The tables of the classes we were offered, downloaded again by somebody who keeps nothing."""
    mine = {name for record in _read_kept(settings) for name in _classes(record)}
    classes = [table.class_id for table in served.head.tables if table.class_id in mine]
    try:
        for class_id in classes:
            cache = TableCache(provider, None, FileWork(settings.timeout_seconds))
            await cache.rows(served, class_id, MessageTimes())
    except (VerificationError, HeadError) as error:
        return [_catch("tables", error, settings)]
    if not classes:
        return [Line("-", "tables", f"nothing was asked in epoch {served.head.epoch} from this machine")]
    return [Line("ok", "tables", f"{len(classes)} of epoch {served.head.epoch} are the ones its head commits to")]


def _answers(settings: Settings, public: bytes) -> Iterator[Line]:
    """Kept answers: signatures and proofs, and where the table is still here, that the rows open as they did."""
    sound = reopened = 0
    hashed: list[Mapping[str, Any]] = []
    for record in _read_kept(settings):
        if "evaluation" not in record:
            hashed += [record] if "looked_up" in record else []
            continue
        try:
            answer = read_signed_answer(record, public)
            for class_id, evaluated, proof in answer.answers:
                protocol.verify(answer.head.table(class_id).public_key, answer.blinded, evaluated, proof)
            tables = _read_cached(settings, public, answer.head.epoch, answer.class_ids)
            if tables:
                held = {row.hex() for rows in open_rows(answer, record["private"], tables) for row in rows if row}
                if missing := set(record["private"].get("rows", ())) - held:
                    raise InvalidEvidenceError(f"{len(missing)} rows of its verdict do not open any more")
                reopened += 1
            sound += 1
        except (InvalidEvidenceError, HeadError, GroupError, protocol.ProofError, KeyError, ValueError) as error:
            yield Line("FAIL", "answers", f"run {record['run_id'][:8]}: {error}")
    yield Line("ok", "answers", f"{sound} kept answers are signed and proven; {reopened} opened again")
    if hashed:
        again, refused = (sum(name in record for record in hashed) for name in ("audited", "refused_audit"))
        text = f"{len(hashed)} answers to hashes: {again} asked for again privately and the same, {refused} refused"
        yield Line("-" if refused or not again else "ok", "hashes", text)


def _outcomes(settings: Settings) -> Line:
    """Jobs that were called compatible, and how they ended; one that is tried again and fails again counts once."""
    answers_by_run = {record["run_id"]: record for record in _read_kept(settings)}
    ended: list[bool] = []
    last: dict[str, bool] = {}
    for run in History(settings).runs()[::-1]:
        record, failed = answers_by_run.get(run.id, {}), run.state == EndState.FAILED
        if record.get("verdict") == "compatible" and run.state in JUDGED:
            job = str(record.get("fingerprint", run.id))
            if not (failed and last.get(job)):
                ended.append(failed)
            last[job] = failed
    total = tally(ended)
    text = f"{total.failures} of {total.runs} jobs called compatible failed"
    if total.alarmed:
        return Line("FAIL", "outcomes", f"{text}: more than usual; its tables are better than its machines")
    few = total.runs < ENOUGH
    return Line("-" if few else "ok", "outcomes", text + ("; too few to judge" if few else ""))


def _catch(check: str, error: VerificationError | HeadError, settings: Settings) -> Line:
    """A failed check, and the file that keeps the evidence."""
    evidence = error.evidence if isinstance(error, VerificationError) else None
    path = Evidence(settings).misbehaviour(evidence) if evidence else None
    return Line("FAIL", check, f"{error}" + (f"; evidence: {path}" if path else ""))


def _classes(record: Mapping[str, Any]) -> list[bytes]:
    """The offer that an answer belongs to."""
    try:
        return parts(bytes.fromhex(record["offer"]))[4:]
    except (KeyError, ValueError, TypeError):
        return []


def _read_kept(settings: Settings) -> Iterator[Mapping[str, Any]]:
    for path in sorted(_answer_files(settings)):
        try:
            yield {**read_json_file(path), "run_id": path.stem}
        except (OSError, ValueError, TypeError):
            continue


def _answer_files(settings: Settings) -> list[Path]:
    """Without those that others have put there; none in a folder where they can."""
    folder = exchange_folder(settings)
    with contextlib.suppress(OSError):
        return [path for path in find_folder(folder / "answers").glob("*.json") if is_own_file(path)] if folder else []
    return []


def _read_cached(settings: Settings, public: bytes, epoch: int, class_ids: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Tables that are still on this machine; no table unless all are there."""
    folder = exchange_folder(settings)
    origin = log_origin(public)
    paths = {name: Path(folder or ".", origin, f"{epoch}-{name.hex()}.rows") for name in class_ids}
    if folder is None or not all(path.exists() for path in paths.values()):
        return {}
    return {name: path.read_bytes() for name, path in paths.items()}
