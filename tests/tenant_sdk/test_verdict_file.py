"""The file of a verdict while the job runs: a scheduler that reads it later reads what is known by then."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import Verdict
from pharoah.sidecar.job_words import JobWords
from pharoah.sidecar.sidecar import Sidecar
from pharoah_protocol.rank_messages import Capture, Hello, HelloAnswer, Launch, LaunchAnswer
from pharoah_protocol.vocabulary import LaunchGate, VerdictStatus
from pharoah_system.standard_streams import STANDARD_ERROR
from tests.harness.exchange import KNOWN, OTHER
from tests.harness.until import wait_until

COMPILED = replace(KNOWN, features={**KNOWN.features, "compiled": "inductor"})


def beside_a_sidecar(folder: Path, settings: Settings, work: Callable[[str], None]) -> None:
    """Do `work`, in a thread, with the path of a sidecar."""

    async def inside() -> None:
        path = folder / "sidecar.sock"
        words = JobWords(settings, STANDARD_ERROR)
        serving = asyncio.create_task(Sidecar(path, settings, bytes(16), words=words).serve())
        while not path.exists():
            await asyncio.sleep(0.01)
        await asyncio.to_thread(work, str(path))
        async with asyncio.timeout(10):
            await serving

    asyncio.run(inside())


def content(settings: Settings) -> dict[str, Any]:
    file = Path(settings.verdict_file)
    return dict(json.loads(file.read_text())) if file.exists() else {}


@pytest.mark.parametrize("gate", [LaunchGate.WARN, LaunchGate.OFF])
def test_the_file_is_renewed_when_the_verdict_changes(
    tmp_path: Path, gate: LaunchGate, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(gate=gate, verdict_file=str(tmp_path / "verdict.json"), state_folder=str(tmp_path / "state"))

    def work(path: str) -> None:
        rank = SidecarLink(path, 5.0)
        hello = rank.ask(Hello(0, 2), HelloAnswer, 5.0)
        pending = Verdict.from_dict(hello.verdict)
        assert pending.status is VerdictStatus.PENDING
        rank.ask(Launch(2), LaunchAnswer, 5.0)
        rank.send(Capture(0, COMPILED.to_json()))
        wait_until(lambda: content(settings).get("status") == "unknown", "the later verdict in its file")
        assert "does not show its structure" in content(settings)["reason"]
        rank.send(Capture(1, OTHER.to_json()))
        wait_until(lambda: bool(content(settings)["findings"]), "a later finding in its file")
        rank.close()

    beside_a_sidecar(tmp_path, settings, work)
    assert content(settings)["findings"][0]["code"] == "rank-differs"
    assert ("VERDICT  UNKNOWN" in capfd.readouterr().err) is (gate is LaunchGate.WARN)
