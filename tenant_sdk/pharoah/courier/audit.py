"""Holding the provider to what it has signed: its log read anew, its tables fetched anew, kept answers opened again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc.aio

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah.comparison.history import History
from pharoah.courier.evidence import exchange_folder
from pharoah.courier.exchange import Exchange
from pharoah.courier.rpc import Provider, reason
from pharoah.courier.tables import Tables
from pharoah.courier.trust import Distrust, Served, read_witnesses
from pharoah.exchange import voprf
from pharoah.exchange.checkpoint import log_origin
from pharoah.exchange.group import GroupError
from pharoah.exchange.head import HeadError
from pharoah.exchange.outcomes import tally
from pharoah.exchange.proofs import NotProven, opened, signed_answer
from pharoah.exchange.rows import VerdictRow

JUDGED = ("ok", "failed")
"""End states that say something of the job and its node."""


@dataclass(frozen=True)
class Line:
    """One thing that was checked."""

    result: str
    """ok, FAIL, or - for what could not be checked or is not decided."""
    check: str
    detail: str


async def audit(settings: Settings) -> list[Line]:
    """Everything there is to check, in order. Raises UnknownReason when the provider cannot be asked."""
    provider = Provider(settings)
    try:
        lines = [*await _log(provider, settings)]
        if lines[-1].result == "FAIL":
            return lines
        served = await Exchange(provider, settings).epoch()
        lines += await _tables(provider, settings, served)
        return [*lines, *_answers(settings, provider.key.public_bytes_raw()), _outcomes(settings)]
    except grpc.aio.AioRpcError as error:
        raise UnknownReason(reason(error)) from None
    finally:
        await provider.channel.close(None)


async def _log(provider: Provider, settings: Settings) -> list[Line]:
    """The whole log, by somebody who remembers nothing, and then by this machine's memory."""
    witnesses = read_witnesses(settings.witnesses_file)
    try:
        anew = Exchange(provider, replace(settings, keep_runs=0))
        served = await anew.epoch()
        remembering = Exchange(provider, settings)
        await remembering.epoch()
    except (Distrust, HeadError) as error:
        return [Line("FAIL", "log", str(error))]
    told = (
        f"{anew.log.frontier.size} entries, epoch {served.head.epoch} of release {served.head.release}; as remembered"
    )
    if not witnesses:
        return [Line("ok", "log", told), Line("-", "witnesses", "none are set (PHAROAH_WITNESSES_FILE)")]
    return [Line("ok", "log", told), Line("ok", "witnesses", f"more than half of {len(witnesses)} have cosigned it")]


async def _tables(provider: Provider, settings: Settings, served: Served) -> list[Line]:
    """The tables of the classes we were offered, downloaded again by somebody who keeps nothing."""
    mine = {bytes.fromhex(name) for record in _kept(settings) for name in record.get("classes", ())}
    classes = [table.class_id for table in served.head.tables if table.class_id in mine]
    try:
        for class_id in classes:
            await Tables(provider, None).rows(served, class_id)
    except (Distrust, HeadError) as error:
        return [Line("FAIL", "tables", str(error))]
    if not classes:
        return [Line("-", "tables", f"nothing was asked in epoch {served.head.epoch} from this machine")]
    return [Line("ok", "tables", f"{len(classes)} of epoch {served.head.epoch} are the ones its head commits to")]


def _answers(settings: Settings, public: bytes) -> Iterator[Line]:
    """Kept answers: signatures and proofs, and where the table is still here, that the rows open as they did."""
    sound = reopened = 0
    for record in _kept(settings):
        if "evaluation" not in record:
            continue
        try:
            answer = signed_answer(record, public)
            for class_id, evaluated, proof in answer.answers:
                voprf.verify(answer.head.table(class_id).public_key, answer.blinded, evaluated, proof)
            tables = _cached(settings, public, answer.head.epoch, answer.class_ids)
            if tables:
                held = [row for rows in opened(answer, record["private"], tables) for row in rows if row]
                for row in held:
                    VerdictRow.unpack(row)
                reopened += 1
            sound += 1
        except (NotProven, HeadError, GroupError, voprf.ProofError, KeyError, ValueError) as error:
            yield Line("FAIL", "answers", f"run {record['run_id'][:8]}: {error}")
    yield Line("ok", "answers", f"{sound} kept answers are signed and proven; {reopened} opened again")


def _outcomes(settings: Settings) -> Line:
    """Runs that were called compatible, and how they ended."""
    said = {record["run_id"]: record.get("verdict") for record in _kept(settings)}
    runs = [run for run in History(settings).runs()[::-1] if said.get(run.id) == "compatible"]
    ended = [run.state == "failed" for run in runs if run.state in JUDGED]
    total = tally(ended)
    told = f"{total.failures} of {total.runs} runs called compatible failed"
    if total.decided == "not kept":
        return Line("FAIL", "outcomes", f"{told}: more than jobs do; its tables are rosier than its machines")
    return Line("ok" if total.decided else "-", "outcomes", told + ("" if total.decided else "; too few to tell"))


def _kept(settings: Settings) -> Iterator[Mapping[str, Any]]:
    folder = exchange_folder(settings)
    for path in sorted((folder / "answers").glob("*.json")) if folder else ():
        try:
            yield {**json.loads(path.read_text()), "run_id": path.stem}
        except (OSError, ValueError):
            continue


def _cached(settings: Settings, public: bytes, epoch: int, class_ids: tuple[bytes, ...]) -> dict[bytes, bytes]:
    """Tables that are still on this machine; none unless all are."""
    folder = exchange_folder(settings)
    origin = log_origin(public)
    paths = {name: Path(folder or ".", origin, f"{epoch}-{name.hex()}.rows") for name in class_ids}
    if folder is None or not all(path.exists() for path in paths.values()):
        return {}
    return {name: path.read_bytes() for name, path in paths.items()}
