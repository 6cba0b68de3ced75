"""The audit log: its chain of hashes, restarts, and a full disk."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from pharoah_serving import audit_log
from pharoah_serving.audit_log import AuditLog, AuditRecord, verify
from pharoah_serving.errors import StoreError
from pharoah_system.trusted_paths import open_unshared


def lines(folder: Path) -> list[Path]:
    return sorted(folder.glob("audit-*.jsonl"))


def test_a_line_cannot_be_changed_dropped_or_moved(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    for number in range(4):
        log.record(1e9 + number, AuditRecord(method=str(number)))
    log.close()
    (file,) = lines(tmp_path)
    text = file.read_text().splitlines()
    verify(file)
    for changed in (
        text[1:],
        [text[0], *text[2:]],
        [text[1], text[0], *text[2:]],
        [text[0].replace("0", "9"), *text[1:]],
    ):
        file.write_text("\n".join(changed) + "\n")
        with pytest.raises(StoreError, match="does not follow"):
            verify(file)


def test_it_goes_on_after_a_restart_and_after_a_crash_in_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        log = AuditLog(tmp_path)
        log.record(1e9 + number, AuditRecord(method="m"))
        log.close()
        (file,) = lines(tmp_path)
        with file.open("a") as half:
            half.write('{"time": 1')
    with caplog.at_level(logging.WARNING):
        AuditLog(tmp_path).close()
    verify(file)
    assert len(file.read_text().splitlines()) == 3
    cut = sorted(tmp_path.glob("*.cut-*"))
    assert [path.read_text() for path in cut] == ['{"time": 1'] * 3 and str(cut[-1]) in caplog.text


def test_days_are_finished_when_they_are_over_whatever_the_clock_does(tmp_path: Path) -> None:
    day = 86_400
    log = AuditLog(tmp_path)
    log.record(10 * day + 1, AuditRecord(method="a"))
    assert list(log.list_finished((), 10 * day + 2)) == []
    ((number, digest),) = log.list_finished((), 11 * day + 5)
    assert number == 10 and digest.hex() == verify(lines(tmp_path)[0])
    log.record(11 * day + 7, AuditRecord(method="b"))
    log.record(10 * day + 9, AuditRecord(method="the clock was set back"))
    assert list(log.list_finished({10}, 11 * day + 9)) == [], "a finished day does not change any more"
    assert len(lines(tmp_path)[1].read_text().splitlines()) == 2
    again = AuditLog(tmp_path)
    assert [record.method for record in again.today(10 * day + 20)] == ["a", "the clock was set back"]
    again.close()
    assert [number for number, _ in log.list_finished({10}, 12 * day)] == [11]
    log.close()


def test_a_clock_that_was_years_ahead_leaves_the_days_in_between_free(tmp_path: Path) -> None:
    day = 86_400
    log = AuditLog(tmp_path)
    log.record(10 * day + 1, AuditRecord(method="before"))
    log.record(9_000 * day + 1, AuditRecord(method="ahead"))
    assert [number for number, _ in log.list_finished((), 9_001 * day)] == [10, 9_000]
    log.skip({10, 9_000})
    log.record(10 * day + 3, AuditRecord(method="back"))
    log.record(12 * day + 3, AuditRecord(method="later"))
    assert [path.name for path in lines(tmp_path)[:3]] == [
        "audit-1970-01-11.jsonl", "audit-1970-01-12.jsonl", "audit-1970-01-13.jsonl",
    ]  # fmt: skip
    assert [number for number, _ in log.list_finished({10, 9_000}, 13 * day)] == [11, 12]
    log.close()
    again = AuditLog(tmp_path)
    assert [record.method for record in again.today(10 * day + 9)] == ["before", "back"], "for the quotas"
    again.skip({10, 11, 9_000})
    again.record(12 * day + 9, AuditRecord(method="after a restart"))
    again.close()
    for file in lines(tmp_path):
        verify(file)


def test_a_full_disk_leaves_a_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(tmp_path)
    log.record(1e9, AuditRecord(method="a"))
    honest = os.write
    monkeypatch.setattr("os.write", lambda file, data: honest(file, data[:10]))
    with pytest.raises(StoreError, match="space"):
        log.record(1e9, AuditRecord(method="b"))
    monkeypatch.setattr("os.write", honest)
    log.record(1e9, AuditRecord(method="c"))
    log.close()
    AuditLog(tmp_path).close()
    assert [json.loads(line)["method"] for line in lines(tmp_path)[0].read_text().splitlines()] == ["a", "c"]


def test_today_is_read_back_for_the_quotas(tmp_path: Path) -> None:
    log = AuditLog(tmp_path)
    log.record(1e9, AuditRecord(method="a"))
    assert [record.method for record in AuditLog(tmp_path).today(1e9 + 5)] == ["a"]
    assert list(AuditLog(tmp_path).today(1e9 + 90_000)) == []
    log.close()


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        AuditLog(tmp_path / "file")


def test_half_a_line_in_an_older_file_is_no_obstacle(tmp_path: Path) -> None:
    """The clock was set back over midnight, and the power was cut."""
    day = 86_400
    log = AuditLog(tmp_path)
    log.record(11 * day + 1, AuditRecord(method="ahead"))
    log.record(10 * day + 1, AuditRecord(method="back"))
    log.close()
    older, _ = lines(tmp_path)
    whole = older.read_text()
    for now in (10 * day + 2, 11 * day + 2):  # the start reads the older file on its day, and later to finish it
        older.write_text(f'{whole}{{"time": 1')
        again = AuditLog(tmp_path)
        again.today(now)
        assert [finished.day for finished in again.list_finished((), now)] == [10][: now // day - 10]
        again.close()
        assert older.read_text() == whole
    assert len(list(tmp_path.glob("*.cut-*"))) == 2


@pytest.mark.parametrize("left", [slice(1, None), slice(None, -1), slice(0)])
def test_a_day_whose_file_is_damaged_keeps_no_later_day_back(
    tmp_path: Path, left: slice, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has removed lines. The others are read once, however long their hashes wait to be published."""
    day = 86_400
    log = AuditLog(tmp_path)
    for number in range(10, 13):
        for method in ("a", "b", "c"):
            log.record(number * day + 1, AuditRecord(method=method))
    first, *others = lines(tmp_path)
    whole = first.read_text()
    first.write_text("".join(whole.splitlines(keepends=True)[left]))
    reads: list[Path] = []

    def opened(path: Path) -> Any:
        reads.append(path)
        return open_unshared(path)

    with monkeypatch.context() as noting:
        noting.setattr(audit_log, "open_unshared", opened)
        for _ in range(3):
            assert [finished.day for finished in log.list_finished((), 13 * day)] == [11, 12]
    assert reads == [first, *others] and caplog.text.count(str(first)) == 1
    first.write_text(whole)
    assert [finished.day for finished in log.list_finished((), 13 * day)] == [10, 11, 12]
    log.record(10 * day + 2, AuditRecord(method="the clock was set back"))
    assert first.read_text() == whole, "no line is added to a day whose hash waits"
    log.close()


def test_a_day_whose_file_cannot_be_read_for_a_while_is_finished_afterwards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 86_400
    log = AuditLog(tmp_path)
    for number in (10, 11):
        log.record(number * day + 1, AuditRecord(method="a"))
    first, _ = lines(tmp_path)
    with monkeypatch.context() as unreadable:
        unreadable.setattr(
            audit_log, "open_unshared", lambda path: _away(path) if path == first else open_unshared(path)
        )
        assert [finished.day for finished in log.list_finished((), 12 * day)] == [11]
    assert f"{first}: Input/output error" in caplog.text
    assert [finished.day for finished in log.list_finished((), 12 * day)] == [10, 11]
    log.close()


def _away(path: Path) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
