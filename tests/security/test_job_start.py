"""The job always starts: whatever an agent answers, whatever happens to streams, folders and settings, a job under
`pharoah run` writes and ends as it does alone."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pharoah._errors import UnknownReason
from pharoah._runtime_folder import own_folder, socket_bases
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._sidecar_start import _folders_of_this_job, sidecar_of_this_node
from pharoah._verdict import unknown
from pharoah.cli import _common, _job_process, _preparation
from pharoah.cost.memory import Peak
from pharoah.cost.memory_fit import Fit, MemoryBudget
from pharoah.node_restrictions import MIN_MEMORY_LIMIT_BYTES, NO_RESTRICTIONS, Machine, Restrictions, restrictions_of
from pharoah.sidecar.agent_client import ask_node
from pharoah_protocol.local_messages import decode, encode
from pharoah_protocol.node_profile import InstructionSet, NodeProfile
from pharoah_protocol.rank_messages import CheckAnswer, Status, StatusAnswer
from pharoah_protocol.received_profile import read_received_profile
from pharoah_system.files import write_atomically
from tests.harness.hostile_agent import ABSURD, KEYS, WHOLE, AgentAnswer, answers, hostile_agent, profile, ticket_with
from tests.harness.started_jobs import PROBE, TRAIN, TRAP, Start, started_jobs
from tests.harness.until import wait_until

PROBING = (sys.executable, "-c", PROBE)
GIB = 1 << 30


@pytest.fixture
def root() -> Iterator[Path]:
    with started_jobs() as folder:
        yield folder


def test_a_training_job_is_the_same_under_a_profile_of_a_newer_release(root: Path) -> None:
    (root / "train.py").write_text(TRAIN)
    for name in ("tomllib", "resource", "pharoah_archetypes"):  # torch imports none of them
        (root / f"{name}.py").write_text(TRAP)
    start = Start((sys.executable, str(root / "train.py")))
    stated = {"x": 1, "cpus": ["a"], "isa": "sse", "memory_limit_bytes": 2**70, "threads": 10**6}
    alone, watched = start.alone(root), start.under_pharoah(root, profile("newer", stated))
    assert watched.same_as(alone), watched.errors.decode()
    assert alone.exit_code == 3 and alone.files["result"]
    said = " ".join(watched.errors.decode().split())
    assert "x: this release does not know it" in said and "memory_limit_bytes: a whole number" in said


@pytest.mark.parametrize(
    ("answer", "streams", "folder"),
    [
        (profile("cores", {"cpus": [4096]}), "stderr on a full disk", "modules in the current folder"),
        (profile("memory", {"memory_limit_bytes": 20_000_000}), "stderr is a full pipe", "modules on PYTHONPATH"),
        (AgentAnswer("silent", waits=True), "stderr closed", "odd settings of Python"),
        (AgentAnswer("endless", b"x" * 4096, endless=True), "all closed", "deleted"),
        (profile("megabytes", "y" * 3_000_000), "stdout on a full disk", "an empty entry on PYTHONPATH"),
        (None, "stderr is a broken pipe", "a broken sitecustomize of the user's"),
        (profile("a list", []), "stdin closed", "not writable"),
    ],
    ids=lambda value: value.name if isinstance(value, AgentAnswer) else None,
)
def test_nothing_around_a_job_changes_it(root: Path, answer: AgentAnswer | None, streams: str, folder: str) -> None:
    start = Start(PROBING, streams, folder, ignored=(signal.SIGHUP, signal.SIGINT, signal.SIGCHLD))
    alone, watched = start.alone(root), start.under_pharoah(root, answer)
    assert watched.same_as(alone), f"{watched}\n{alone}"
    assert b"cannot be loaded" not in watched.errors


def test_modules_on_the_path_run_no_more_often_than_they_do_alone(root: Path) -> None:
    """The job fails, because it imports the user's own `torch`; its dry run imports it in the sandbox only."""
    (root / "train.py").write_text(TRAIN)
    start = Start((sys.executable, str(root / "train.py")), folder="modules on PYTHONPATH")
    alone, watched = start.alone(root), start.under_pharoah(root)
    assert alone.files == {"result.trap": b"torch\n"} and watched.same_as(alone), watched


def test_a_wrong_profile_does_not_keep_a_command_from_being_started_under_it(root: Path) -> None:
    start = Start(PROBING)
    alone = start.alone(root)
    for stated in ('{"x": 1, "cpus": [4096], "threads": 1}', "no JSON"):
        wrapped = start.under_profile(root, stated)
        assert wrapped.same_as(alone), wrapped
        assert b"not applied of the node's profile" in wrapped.errors


def test_whatever_an_agent_states_becomes_a_profile_that_can_be_used_and_sent() -> None:
    for stated in [*WHOLE, *ABSURD, *({key: value} for key in KEYS for value in ABSURD)]:
        read = read_received_profile(stated)
        message = CheckAnswer({}, read.profile, read.dropped)
        assert decode(encode(message)).message == message, stated
        assert read.dropped or read.profile.to_dict() == (stated or {}), f"{stated!r} was dropped without a word"
        assert len(" ".join(read.dropped)) < 1000
    assert read_received_profile({"threads": 2, "new": 1}).profile == NodeProfile(threads=2), "what is good is kept"


def test_whatever_an_agent_answers_there_is_a_ticket_or_a_reason(root: Path) -> None:
    path = root / "agent.sock"

    async def asked() -> str:
        try:
            return (await ask_node(str(path), 0.15)).ticket.signature.hex()
        except UnknownReason as reason:
            return str(reason)

    for answer in answers(0, 50)[23:]:
        with hostile_agent(path, answer):
            assert asyncio.run(asked()), answer.name
    newer = ticket_with(profile={}, lease={"seconds": 60}, release=9)
    with hostile_agent(path, AgentAnswer("newer", newer)):
        assert asyncio.run(asked()) == json.loads(newer)["signature"], (
            "fields of a newer release do not cost the ticket"
        )


# What is applied of a profile


def machine(*cpus: int, **variables: str) -> Machine:
    sets = frozenset({InstructionSet.DEFAULT, InstructionSet.AVX2})
    return Machine(frozenset(cpus), sets, variables)


def needs(needed: int, limit: int) -> Fit:
    return Fit(MemoryBudget("limit", limit), needed, Peak(needed, {}, 0))


def applied(stated: NodeProfile, here: Machine, fit: Fit | None = None) -> Restrictions:
    return restrictions_of(stated, (), here, fit).restrictions


def test_cores_are_only_taken_from_those_that_the_job_has_and_that_is_said() -> None:
    judged = restrictions_of(NodeProfile(cpus=(0, 1, 7)), (), machine(0, 1, 2, 3), None)
    assert judged.restrictions.cpus == {0, 1}
    assert [finding.what for finding in judged.findings] == ["the node's profile leaves this job 2 of 4 cores"]
    assert applied(NodeProfile(cpus=(0, 1)), machine(0, 1)) == NO_RESTRICTIONS
    assert applied(NodeProfile(cpus=(7,)), machine(0, 1)) == NO_RESTRICTIONS, "a job cannot run on no core"


def test_a_memory_limit_is_applied_only_where_a_dry_run_shows_that_the_job_fits() -> None:
    large, small = 8 * GIB, MIN_MEMORY_LIMIT_BYTES // 2
    assert applied(NodeProfile(memory_limit_bytes=large), machine(0), needs(GIB, large)).data_limit_bytes == large
    for limit, fit in [(large, None), (large, needs(9 * GIB, large)), (large, needs(large, large)),
                       (small, needs(1, small))]:  # fmt: skip
        judged = restrictions_of(NodeProfile(memory_limit_bytes=limit), (), machine(0), fit)
        assert judged.restrictions.data_limit_bytes == 0
        assert "memory_limit_bytes" in judged.findings[0].what and judged.findings[0].code == "node-profile-not-applied"


def test_a_profile_never_raises_what_the_job_would_have_alone() -> None:
    stated = NodeProfile(threads=2, isa=InstructionSet.AVX2)
    own = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    assert applied(stated, machine(0, 1, **own)).variables == {"MKL_NUM_THREADS": "2"}
    assert applied(NodeProfile(threads=64), machine(0, 1)).variables == {}, "more threads than cores are no limit"
    assert applied(NodeProfile(isa=InstructionSet.AVX512), machine(0)).variables == {}, "torch would end by SIGILL"


# The guard


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    _common.add_check_options(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize("fault", [MemoryError, RecursionError, KeyError, SystemExit, OSError, AssertionError])
def test_whatever_fails_before_the_start_means_that_the_job_starts(
    monkeypatch: pytest.MonkeyPatch, fault: type[BaseException]
) -> None:
    def fails(_: Settings, __: _common.ShutdownTime, *, speaks: bool) -> Any:
        raise fault("the cause")

    monkeypatch.setattr(_common, "sidecar", fails)
    prepared = _preparation.prepare(["true"], options(), Settings())
    assert prepared.exit_code == 0 and "the cause" in prepared.words and "starts without it" in prepared.words
    assert _preparation.prepare(["true"], options("--strict"), Settings()).exit_code == 11, "the user has asked for it"


def test_a_check_that_does_not_end_is_given_up_and_what_it_holds_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, closed = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def hangs(_: Settings, __: _common.ShutdownTime, *, speaks: bool) -> Iterator[None]:
        go_on.wait()
        try:
            yield None
        finally:
            closed.set()

    monkeypatch.setattr(_common, "sidecar", hangs)
    monkeypatch.setattr(_preparation._check, "check_job", lambda *_: _preparation._check.Checked(unknown("late"), None))
    monkeypatch.setattr(_preparation, "longest_seconds", lambda _: 0.05)
    prepared = _preparation.prepare(["true"], options(), Settings())
    assert prepared.exit_code == 0 and "longer than 0.05 s" in prepared.words
    go_on.set()
    assert closed.wait(5)


def test_a_job_that_cannot_be_restricted_is_started_once_without(capfd: pytest.CaptureFixture[str]) -> None:
    cannot = Restrictions(variables={"NUL": "\0"})
    child = _job_process.start([sys.executable, "-c", "print('ran')"], {}, cannot)
    assert child.wait() == 0
    assert capfd.readouterr().out == "ran\n"


def test_restrictions_that_fail_are_named_and_the_job_runs(capfd: pytest.CaptureFixture[str]) -> None:
    child = _job_process.start([sys.executable, "-c", "print('ran')"], {}, Restrictions(cpus=frozenset({8191})))
    assert child.wait() == 0
    seen = capfd.readouterr()
    assert seen.out == "ran\n" and "not applied of the node's profile: cpus" in seen.err


@pytest.mark.parametrize("closed", [False, True])
def test_a_result_that_cannot_be_written_is_an_exit_code_of_its_own(closed: bool) -> None:
    command = f"exec {sys.executable} -m pharoah findings {'>&-' if closed else '> /dev/full'}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 74 and "Traceback" not in done.stderr and "cannot be written" in done.stderr


def test_watching_a_job_imports_no_module_that_could_be_one_of_the_jobs_own() -> None:
    code = """
import sys, torch
from torch.optim import optimizer
before = set(sys.modules)
from pharoah import _flight_responder, _session
from pharoah.capture import hooks
hooks._prepare()
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    hook = (Path(_common.__file__).parents[1] / "_inject" / "sitecustomize.py").read_text()
    new = {name for name in done.stdout.split() if not name.startswith(("importlib", "pharoah"))}
    assert new and all(f'"{name}"' in hook for name in new), new


# Folders


def test_a_folder_that_somebody_else_has_prepared_is_not_entered(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim, theirs = root / "victim", root / "open"
    victim.mkdir(mode=0o700)
    (victim / "lock").write_text("precious")
    theirs.mkdir()
    theirs.chmod(0o755)
    monkeypatch.setenv("TMPDIR", str(root))
    first, second, third = _folders_of_this_job()[:3]
    first.symlink_to(victim)
    second.symlink_to(theirs)
    path = Path(sidecar_of_this_node(Settings()))
    with contextlib.closing(SidecarLink(str(path), 5.0)) as link:  # its last connection ends a sidecar
        link.ask(Status(), StatusAnswer, 5.0)
        assert path.parent == third and third.stat().st_mode & 0o777 == 0o700
    assert (victim / "lock").read_text() == "precious" and [path.name for path in victim.iterdir()] == ["lock"]
    for folder in (first, theirs):
        with pytest.raises(PermissionError):
            own_folder(folder)
    wait_until(lambda: not path.parent.exists(), "the sidecar to end")


def test_a_runtime_folder_is_used_only_when_it_is_private(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "shared").mkdir()
    (root / "shared").chmod(0o777)
    (root / "private").mkdir(mode=0o700)
    (root / "link").symlink_to(root / "private")
    monkeypatch.setenv("TMPDIR", str(root / "shared"))
    for folder, used in [("private", True), ("link", False), ("shared", False), ("nothing", False)]:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / folder))
        assert (root / folder in socket_bases()) == used, folder


def test_a_file_is_written_through_no_link(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "verdict.json"
    victim.write_text("precious")
    for name in (f".verdict.json.{os.getpid()}", ".verdict.json.new"):
        (tmp_path / name).symlink_to(victim)
    target.symlink_to(victim)
    write_atomically(target, "verdict")
    assert victim.read_text() == "precious" and target.read_text() == "verdict" and not target.is_symlink()
    assert len(list(tmp_path.iterdir())) == 4, "no scratch file is left"
