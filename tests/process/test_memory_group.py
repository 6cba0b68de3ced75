"""What the control groups of a job still leave, in both versions, and what of ours then starts, stays or leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah import _sidecar_start
from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah._sidecar_start import NoRoomError, start_sidecar
from pharoah.dryrun import parent
from pharoah.sidecar import memory_watch
from pharoah.sidecar.memory_watch import Leaving, MemoryWatch
from pharoah_system.memory_group import GroupRoom, be_killed_first, group_room

MIB = 1 << 20
FIRST = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
SECOND = ("memory.max", "memory.current", "inactive_file")
NO_LIMIT = {FIRST: str(0x7FFFFFFFFFFFF000), SECOND: "max"}


def machine(folder: Path, line: str, groups: dict[str, dict[str, str]]) -> GroupRoom | None:
    """The room of process 7 on a machine with these groups."""
    proc, cgroups = folder / "proc", folder / "groups"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"{line}\n")
    for group, files in groups.items():
        (cgroups / group).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (cgroups / group / name).write_text(f"{text}\n")
    return group_room(7, proc, cgroups)


@pytest.mark.parametrize(
    ("files", "line", "top"), [(FIRST, "4:memory:/job/step", "memory/"), (SECOND, "0::/job/step", "")]
)
@pytest.mark.parametrize(
    ("own", "above", "free"),
    [
        ((900, 700, 50), (None, 0, 0), 250),
        ((None, 700, 0), (1000, 900, 30), 130),
        ((900, 100, 0), (1000, 950, 0), 50),  # others of the job hold it
        ((900, 1000, 0), (None, 0, 0), 0),  # the limit was lowered below the use
        ((900, 100, 500), (None, 0, 0), 900),  # counted a moment apart
        ((None, 700, 0), (None, 900, 0), None),
    ],
)
def test_the_tightest_limit_counts_in_both_versions(
    tmp_path: Path,
    files: tuple[str, str, str],
    line: str,
    top: str,
    own: tuple[int | None, int, int],
    above: tuple[int | None, int, int],
    free: int | None,
) -> None:
    limit_file, use_file, cache = files

    def group(limit: int | None, use: int, cached: int) -> dict[str, str]:
        shown = NO_LIMIT[files] if limit is None else str(limit)
        return {limit_file: shown, use_file: str(use), "memory.stat": f"anon 5\n{cache} {cached}\nshmem 70"}

    room = machine(tmp_path, line, {f"{top}job/step": group(*own), f"{top}job": group(*above)})
    assert (None if room is None else room.free_bytes) == free


@pytest.mark.parametrize(
    ("flags", "kills_all"),
    [(("0", "0"), False), (("1", "0"), True), (("0", "1"), True), ((None, None), False)],
)
def test_a_group_that_is_killed_as_a_whole_is_known(
    tmp_path: Path, flags: tuple[str | None, str | None], kills_all: bool
) -> None:
    """The flag counts in the group of the limit and in those below it (cgroup-v2, memory.oom.group)."""
    groups: dict[str, dict[str, str]] = {"job/step": {}, "job": {"memory.max": "1000", "memory.current": "200"}}
    for group, flag in zip(groups, flags, strict=True):
        groups[group] |= {} if flag is None else {"memory.oom.group": flag}
    room = machine(tmp_path, "0::/job/step", groups)
    assert room == GroupRoom(800, 1000, kills_all)
    assert room.usable_bytes == (400 if kills_all else 800)


def test_a_flag_above_the_limit_says_nothing_about_it(tmp_path: Path) -> None:
    groups = {"job": {"memory.oom.group": "1"}, "job/step": {"memory.max": "1000", "memory.current": "200"}}
    assert machine(tmp_path, "0::/job/step", groups) == GroupRoom(800, 1000, False)


def test_a_limit_with_swap_counts_too(tmp_path: Path) -> None:
    files = dict(zip(FIRST, ("1000", "500", ""), strict=True)) | {
        "memory.memsw.limit_in_bytes": "1200",
        "memory.memsw.usage_in_bytes": "1150",
    }
    assert machine(tmp_path, "4:memory:/job", {"memory/job": files}) == GroupRoom(50, 1200, False)


def test_nothing_starts_where_there_is_no_room_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch")
    for module in (_sidecar_start, parent):
        monkeypatch.setattr(module, "group_room", lambda: GroupRoom(20 * MIB, 600 * MIB, False))
    with pytest.raises(NoRoomError, match="20 MiB of the memory group are left"):
        start_sidecar(tmp_path / "sidecar.sock", Settings())
    with pytest.raises(UnknownReason, match="20 MiB of the memory group are left, and a dry run takes 400 MiB"):
        parent.dry_run([sys.executable, str(script)], 30.0)


def test_a_sidecar_leaves_once_its_own_size_is_no_longer_free(monkeypatch: pytest.MonkeyPatch) -> None:
    own, left, gone = 30 * MIB, list[Leaving](), threading.Event()

    def leave(leaving: Leaving) -> None:
        left.append(leaving)
        gone.set()

    rooms = iter([None, GroupRoom(100 * MIB, 600 * MIB, False), GroupRoom(120 * MIB, 600 * MIB, True)])
    monkeypatch.setattr(memory_watch, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(memory_watch, "CLOSE_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(memory_watch, "limits_of", lambda _: [])
    monkeypatch.setattr(memory_watch, "room_within", lambda _: next(rooms))
    monkeypatch.setattr(memory_watch, "own_bytes", lambda _: own)
    monkeypatch.setattr(memory_watch, "descendants", lambda _: [])
    MemoryWatch(os.getpid(), leave).begin()
    assert gone.wait(10)
    assert left == [Leaving(GroupRoom(120 * MIB, 600 * MIB, True), own)], "60 MiB of 120 where all are killed"
    assert "120 MiB of the memory group are left, and watching takes 30 MiB" in str(left[0])


@given(free=st.integers(0, 1 << 40), own=st.integers(0, 1 << 32), kills_all=st.booleans())
def test_a_look_comes_before_a_job_could_have_taken_the_room(free: int, own: int, kills_all: bool) -> None:
    room = GroupRoom(free, 1 << 41, kills_all)
    seconds = memory_watch.seconds_to_next_look(room, own)
    assert memory_watch.CLOSE_LOOK_SECONDS <= seconds <= memory_watch.LOOK_SECONDS
    taken = seconds * memory_watch.GROWTH_BYTES_PER_SECOND
    if seconds > memory_watch.CLOSE_LOOK_SECONDS:
        assert room.usable_bytes - taken >= own


def test_a_process_of_ours_is_killed_first_and_so_is_what_it_starts() -> None:
    show = "import subprocess; print(subprocess.run(['cat', '/proc/self/oom_score_adj'], capture_output=True).stdout)"
    with subprocess.Popen([sys.executable, "-c", f"input(); {show}"], stdin=-1, stdout=-1, text=True) as child:
        be_killed_first(child.pid)
        assert child.communicate("\n")[0] == "b'1000\\n'\n"
