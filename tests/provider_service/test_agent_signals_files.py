"""What signals take of the kernel's files: whole lists, disks that get another's name, links that are read seldom."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from pharoah_provider.agent.signals import AGENT_SIGNALS, Reading, SignalKind
from pharoah_provider.agent.signals import _disks as disks
from pharoah_provider.agent.signals import _files as files


def test_a_file_that_comes_in_pieces_is_read_to_its_end() -> None:
    reads, writes = os.pipe2(os.O_DIRECT)  # each read takes one piece (pipe(2))
    try:
        for piece in (b"one ", b"two ", b"three"):
            os.write(writes, piece)
        os.close(writes)
        assert files.text_of(f"/dev/fd/{reads}") == "one two three"
    finally:
        os.close(reads)


def test_a_list_of_the_kernel_is_longer_than_a_page() -> None:
    """The memory of this process has hundreds of parts; the list of mounts has the same form inside the kernel."""
    assert len(files.text_of("/proc/self/smaps") or "") > 2 * mmap.PAGESIZE


def test_another_volume_under_the_name_of_one_that_is_gone_has_not_become_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts, watch = tmp_path / "mounts", disks.WriteWatch()
    monkeypatch.setattr(disks, "MOUNTS", mounts)
    root = "/dev/sda1 / ext4 rw 0 0"
    for others, readings in (
        ("/dev/sdb /data ext4 rw 0 0", [Reading(0.0, "sda1"), Reading(0.0, "sdb")]),
        ("", [Reading(0.0, "sda1")]),
        ("/dev/sdb /images ext4 ro 0 0", [Reading(0.0, "sda1"), Reading(0.0, "sdb")]),
        ("/dev/sdb /images ext4 rw 0 0", [Reading(0.0, "sda1"), Reading(0.0, "sdb")]),
        ("/dev/sdb /images ext4 ro 0 0", [Reading(0.0, "sda1"), Reading(1.0, "sdb")]),
    ):
        mounts.write_text(f"{root}\n{others}\n")
        assert list(watch.readings()) == readings


def test_a_file_system_that_a_program_answers_for_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "MOUNTS", tmp_path / "mounts")
    (tmp_path / "mounts").write_text(
        f"/dev/fuse {tmp_path} fuse.portal rw 0 0\n/dev/nvme7n1 {tmp_path} fuse rw 0 0\n"
        f"/dev/sdb1 {tmp_path} fuseblk rw 0 0\n"
    )
    assert [reading.device for reading in disks.free_ratios()] == ["sdb1"]
    assert [reading.device for reading in disks.WriteWatch().readings()] == ["sdb1"]


def test_error_counters_of_links_are_read_every_ten_seconds_and_their_state_every_second() -> None:
    """A host may have a hundred ports, each with a dozen counters. A link that dies is seen well within a minute."""
    links = [signal for signal in AGENT_SIGNALS if signal.name.startswith(("fabric_", "network_"))]
    assert {signal.period_seconds for signal in links if signal.kind is SignalKind.COUNTER} == {10.0}
    assert {signal.period_seconds for signal in links if signal.kind is not SignalKind.COUNTER} == {1.0}
