"""`pharoah audit` against a real provider, and the sequential test behind it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.comparison.history import History, Run
from pharoah.sidecar.evidence import Evidence, exchange_folder
from pharoah.sidecar.exchange_client import ExchangeClient
from pharoah.sidecar.provider_audit import Line, audit
from pharoah.sidecar.provider_connection import ProviderConnection
from pharoah.sidecar.verdict_rules import verdict_from_rows
from pharoah_protocol.log.merkle import Frontier
from pharoah_protocol.tables.outcome_test import SUSPICIOUS_RATIO, USUAL_RATIO, tally
from tests.harness.exchange import KNOWN, on_loopback
from tests.harness.loopback import Loopback, ticket


async def asked(settings: Settings, run_id: str) -> None:
    provider = ProviderConnection(settings)
    answer = await ExchangeClient(provider, settings).ask(KNOWN, ticket())
    Evidence(settings).answer(run_id, {**answer.record, "verdict": verdict_from_rows(answer, run_id).status})
    await provider.channel.close(None)


def of_another_log(memory: dict[str, Any]) -> dict[str, Any]:
    """What is remembered of a log, with another first entry."""
    entries = [bytes.fromhex(entry) for entry in memory["trail"]["entries"]]
    entries[0] = entries[0][:-1] + bytes([entries[0][-1] ^ 1])
    memory["trail"]["entries"] = [entry.hex() for entry in entries]
    memory["view"]["subtrees"] = [part.hex() for part in Frontier().add(*entries).subtrees]
    return memory


def results(lines: list[Line]) -> dict[str, str]:
    return {line.check: line.result for line in lines}


def test_an_honest_provider_passes(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        await asked(settings, "ab" * 16)
        lines = await audit(settings)
        assert results(lines) == {"log": "ok", "witnesses": "-", "tables": "ok", "answers": "ok", "outcomes": "-"}
        assert "1 kept answers are signed and proven; 1 opened again" in [line.detail for line in lines]
        assert max(len(f"{line.result:4}  {line.check:10} {line.detail}") for line in lines) <= 80

    on_loopback(tmp_path, work)


def test_before_anything_was_asked_there_is_little_to_say(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        lines = await audit(site.settings())
        assert results(lines)["tables"] == "-" and results(lines)["log"] == "ok"

    on_loopback(tmp_path, work)


def test_a_kept_answer_that_was_changed_fails(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        await asked(settings, "ab" * 16)
        folder = exchange_folder(settings)
        assert folder is not None
        file = folder / "answers" / f"{'ab' * 16}.json"
        record = json.loads(file.read_text())
        record["private"]["blinds"][0], record["private"]["blinds"][1] = record["private"]["blinds"][1::-1]
        file.write_text(json.dumps(record))
        failed = [line for line in await audit(settings) if line.result == "FAIL"]
        assert [line.check for line in failed] == ["answers"] and "abababab" in failed[0].detail

    on_loopback(tmp_path, work)


def test_a_log_that_is_not_the_remembered_one_fails(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        await asked(settings, "ab" * 16)
        (memory,) = Path(settings.state_folder).glob("exchange/*/pharoah-log-*.json")
        memory.write_text(json.dumps(of_another_log(json.loads(memory.read_text()))))
        assert results(await audit(settings)) == {"log": "FAIL"}

    on_loopback(tmp_path, work)


def test_jobs_that_fail_although_they_were_called_compatible_speak_against_it(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = replace(site.settings(), keep_runs=60)
        history, evidence = History(settings), Evidence(settings)
        for number in range(40):
            run_id = f"{number:032x}"
            evidence.answer(run_id, {"verdict": "compatible"})
            history.write(Run(run_id, began=float(number + 1), state="failed" if number % 2 else "ok"))
        (line,) = [line for line in await audit(settings) if line.check == "outcomes"]
        assert line.result == "FAIL" and "better than its machines" in line.detail

    on_loopback(tmp_path, work)


def test_an_honest_provider_is_hardly_ever_accused_however_often_one_looks() -> None:
    chance = random.Random(5)

    def alarmed(rate: float, runs: int) -> float:
        return sum(tally(chance.random() < rate for _ in range(runs)).alarmed for _ in range(500)) / 500

    assert alarmed(USUAL_RATIO, 1000) <= 0.02
    assert alarmed(SUSPICIOUS_RATIO, 200) >= 0.95


def test_what_went_well_for_long_excuses_nothing() -> None:
    assert tally([*[False] * 5000, *[True] * 9]).alarmed
    assert tally([*[True] * 9, *[False] * 5000]).alarmed, "an alarm stays"


def test_a_job_that_is_tried_again_and_again_is_one_job(tmp_path: Path) -> None:
    async def work(site: Loopback) -> None:
        settings = site.settings()
        history, evidence = History(settings), Evidence(settings)
        for number in range(30):
            run_id = f"{number:032x}"
            evidence.answer(run_id, {"verdict": "compatible", "fingerprint": "the same job"})
            history.write(Run(run_id, began=float(number + 1), state="failed"))
        (line,) = [line for line in await audit(settings) if line.check == "outcomes"]
        assert line.result == "-" and line.detail.startswith("1 of 1 ")

    on_loopback(tmp_path, work)
