"""Archives of traces: what else is in them does not keep their traces from being read."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from pharoah_provider.cli import main
from pharoah_provider.traces import TraceError, read_traces

TRACE = json.dumps([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "tid": 1}]).encode()


def archive(path: Path, contents: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as packed:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["all.tar", "all.tar.gz"])
def test_members_are_unpacked_and_other_files_are_left_out(tmp_path: Path, name: str) -> None:
    contents = {
        "run/README.md": b"# hi",
        "run/b.json.gz": gzip.compress(TRACE),
        "run/loss.csv": b"1",
        "run/c.json": TRACE,
    }
    path = archive(tmp_path / name, contents)
    assert [trace.source for trace in read_traces(path)] == [f"{name}:b.json.gz", f"{name}:c.json"]


def test_an_error_concerns_its_own_member(tmp_path: Path) -> None:
    cut = gzip.compress(TRACE * 100)[:-20]
    contents = {"a.json": b'{"config": 1}', "b.json": TRACE, "c.json.gz": cut, "d.et": b"\xff" * 40, "e.json": TRACE}
    path = archive(tmp_path / "all.tar.gz", contents)
    unread: list[TraceError] = []
    assert [trace.source for trace in read_traces(path, unread)] == ["all.tar.gz:b.json", "all.tar.gz:e.json"]
    assert [str(error).split(": ")[0] for error in unread] == [
        f"all.tar.gz:{name}" for name in ("a.json", "c.json.gz", "d.et")
    ]
    with pytest.raises(TraceError, match=r"all\.tar\.gz:a\.json"):
        list(read_traces(path))


def test_an_archive_that_is_damaged_or_holds_no_trace_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"none\.tar: at byte 0: the archive holds no file that ends in \.json"):
        list(read_traces(archive(tmp_path / "none.tar", {"README.md": b"# hi"})))
    random = Random(1)
    contents = {f"{number}.json": TRACE + random.randbytes(1000).hex().encode() for number in range(50)}
    whole = archive(tmp_path / "cut.tar.gz", contents).read_bytes()
    (tmp_path / "cut.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TraceError, match=r"cut\.tar\.gz: at byte 0: damaged or cut short: Compressed file ended"):
        list(read_traces(tmp_path / "cut.tar.gz"))


def test_the_command_names_what_it_could_not_read_and_counts_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive(tmp_path / "all.tar", {"a.json": b'{"config": 1}', "b.json": TRACE, "notes.txt": b"x"})
    assert main(["archetypes", "mine", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("1 traces,") and "1 unread" in printed.out
    assert "all.tar:a.json: at byte" in printed.err
