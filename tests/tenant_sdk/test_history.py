"""Runs leave their records, which are found by the beginning of their ids."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah._settings import Settings
from pharoah.cli.main import main
from pharoah.comparison.history import KEPT_DAYS, History, Run, read
from pharoah.comparison.record import Record, RecordError
from pharoah.sidecar.run_recorder import RunRecorder
from pharoah_archetypes import Fingerprint, parse

RECORD = Record({"choices": {"dtype": "float32"}, "settings": {"sgd lr": "0.1"}})


def history(folder: Path, keep: int = 200) -> History:
    return History(Settings(state_folder=str(folder), keep_runs=keep))


def run(number: int, **known: object) -> Run:
    return Run(f"{number:032x}", began=1000.0 + number, record=RECORD, **known)  # type: ignore[arg-type]


@given(st.text(), st.integers(0), st.floats(0, 1e6))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, command: str, steps: int, seconds: float
) -> None:
    folder = tmp_path_factory.mktemp("state")
    written = run(7, command=command, steps=steps, step_seconds=seconds, state="ok")
    history(folder).write(written)
    assert history(folder).find(written.id) == written


def test_a_beginning_finds_one_run_or_says_why_not(tmp_path: Path) -> None:
    kept = history(tmp_path)
    for name in ("abcd1" + "0" * 27, "abcd2" + "0" * 27):
        kept.write(Run(name, record=RECORD))
    assert kept.find("abcd2").id.startswith("abcd2")
    with pytest.raises(RecordError, match="abcd: the beginning of 2 runs' ids; `pharoah status --ended`"):
        kept.find("abcd")
    with pytest.raises(RecordError, match="no file and no run that is kept"):
        kept.find("ffff")
    with pytest.raises(RecordError, match="too short for a run"):
        kept.find("abc")
    with pytest.raises(RecordError, match="no file and no run that is kept"):
        history(tmp_path / "elsewhere").find("abcd1")


def test_the_oldest_go_and_none_are_kept_if_none_are_wanted(tmp_path: Path) -> None:
    kept = history(tmp_path, keep=3)
    for number in range(5):
        kept.write(run(number))
        os.utime(kept.folder() / f"{number:032x}.json", (number, number))
    assert [seen.began for seen in kept.runs()] == [1004.0, 1003.0, 1002.0]
    history(tmp_path / "none", keep=0).write(run(1))
    assert not (tmp_path / "none").exists()


def test_nobody_else_may_read_them(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.write(run(1))
    [path] = kept.folder().iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("{", "not a record"),
        ("[]", "format: expected 1"),
        ('{"format": 1, "groups": {}, "run": 3}', "run: made by another release"),
        ('{"format": 1, "groups": {}, "run": {"id": "x", "moon": 1}}', "run: made by another release"),
        ('{"format": 1, "groups": {}, "run": {"id": "x", "steps": "y"}}', "run.steps: 'y' is not a int"),
        ('{"format": 1, "groups": {}, "run": {"id": "x", "began": 1e30}}', r"run.began: 1e\+30 is not a float"),
        ('{"format": 1, "groups": {}, "run": {"id": "x", "began": NaN}}', "not a record"),
    ],
)
def test_a_file_that_is_no_run_is_passed_over_and_named_when_asked_for(
    tmp_path: Path, content: str, expected: str
) -> None:
    kept = history(tmp_path)
    kept.write(run(1))
    (kept.folder() / f"{'a' * 32}.json").write_text(content)
    assert [seen.id for seen in kept.runs()] == [run(1).id]
    with pytest.raises(RecordError, match=f"{'a' * 32}.json: {expected}"):
        kept.find("aaaa")


def test_a_folder_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        history(tmp_path / "file").write(run(1))
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # nobody has a home
    with pytest.raises(FileNotFoundError, match="set PHAROAH_STATE_DIR"):
        History(Settings()).write(run(1))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = history(tmp_path)
    monkeypatch.setattr(os, "rename", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        kept.write(run(1))
    assert list(kept.folder().iterdir()) == []


def test_a_home_that_machines_share_keeps_the_newest_of_each(tmp_path: Path) -> None:
    kept = history(tmp_path, keep=1)
    other = kept.folder().parent / "another-machine"
    other.mkdir()
    (other / f"{'b' * 32}.json").write_text(Run("b" * 32, record=RECORD).to_json())
    kept.write(run(1))
    assert [seen.id for seen in kept.runs()] == [run(1).id]
    assert kept.find("bbbb").id == "b" * 32


def test_a_record_alone_is_a_run_without_a_name(tmp_path: Path) -> None:
    path = tmp_path / "good.json"
    path.write_text(RECORD.to_json())
    assert read(path) == Run("", record=RECORD)


GRAMMAR = "fwd: gemm act gemm nll\nbwd: grad"
SEEN = parse(GRAMMAR)


def test_runs_of_machines_that_write_no_more_go_after_some_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod has a new name each time."""
    for number, days in enumerate((KEPT_DAYS + 1, KEPT_DAYS - 1)):
        monkeypatch.setattr(os, "uname", lambda number=number: SimpleNamespace(nodename=f"pod-{number}"))
        history(tmp_path).write(run(number))
        at = time.time() - days * 86_400
        os.utime(tmp_path / "runs" / f"pod-{number}", (at, at))
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="pod-2"))
    for number in (2, 3):
        history(tmp_path).write(run(number))
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["pod-1", "pod-2"]


def test_a_journal_keeps_what_was_checked_seen_and_timed(tmp_path: Path) -> None:
    async def live(groups: dict[str, dict[str, str]]) -> Run:
        settings = Settings(state_folder=str(tmp_path))
        journal = RunRecorder(os.urandom(16), settings)
        journal.note_start("python train.py", groups)
        sizes = {"parameters": 1, "activations": 1}
        journal.capture(Fingerprint(SEEN.archetype, SEEN.compute, GRAMMAR, {}, sizes, {"torch": "2.13.0"}))
        journal.note_step(1, [2_000_000, 4_000_000])
        journal.note_step(0, [9_000_000])
        journal.note_step(1, [3_000_000])
        await journal.end("ok")
        return History(settings).runs()[0]

    checked = asyncio.run(live(RECORD.groups))
    assert (checked.state, checked.steps, checked.step_seconds) == ("ok", 3, 0.003)
    assert checked.record == RECORD
    seen = asyncio.run(live({})).record.groups
    assert seen["structure"]["fwd"] == "gemm act gemm nll" and seen["software"] == {"torch": "2.13.0"}
    assert "cost" not in seen  # nobody knows it


def test_nothing_is_kept_of_a_job_that_was_only_checked(tmp_path: Path) -> None:
    asyncio.run(RunRecorder(os.urandom(16), Settings(state_folder=str(tmp_path))).end("ok"))
    assert list(tmp_path.iterdir()) == []


def test_a_far_disk_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, states = threading.Event(), list[str]()

    def write(_: History, run: Run) -> None:
        wait.wait()
        states.append(run.state)

    monkeypatch.setattr(History, "write", write)

    async def live() -> None:
        journal = RunRecorder(os.urandom(16), Settings(state_folder=str(tmp_path), shutdown_timeout_seconds=0.01))
        journal.note_start("python train.py", RECORD.groups)
        await journal.end("ok")
        assert states == [], "the disk has taken nothing yet"
        wait.set()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})  # type: ignore[arg-type]

    asyncio.run(live())
    assert states == ["not ended", "ok"], "both in their order, once it does"


@pytest.mark.usefixtures("quick_commands")
def test_two_runs_are_compared_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHAROAH_STATE_DIR", str(tmp_path / "state"))
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "from torch.utils.data import DataLoader\n"
        "model = torch.nn.Linear(8, 1)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x in DataLoader(torch.randn(40, 8), batch_size=4, num_workers=int(sys.argv[1])):\n"
        "    model(x).pow(2).mean().backward()\n"
        "    optimizer.step()\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    for workers in ("0", "1"):
        # In a process of its own: the command becomes another program when the job has started.
        command = [sys.executable, "-m", "pharoah", "run", "--", sys.executable, str(script), workers]
        assert subprocess.run(command, capture_output=True).returncode == int(workers)
    assert main(["status", "--ended", "-o", "json"]) == 0
    failed, good = (known["run"] for known in json.loads(capsys.readouterr().out))
    assert (good["state"], good["steps"], failed["state"]) == ("ok", 8, "failed")
    assert main(["compare", good["id"][:12], failed["id"][:12]]) == 0
    shown = capsys.readouterr().out
    assert "ok, 8 steps of" in shown and "  failed, 8 steps of" in shown
    assert "settings  loader num_workers\n      A 0\n      B 1\n" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["status", "--ended"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
