"""Whatever another user has put into a folder, nothing that we write there is his, and nothing of ours changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pharoah_system.files import (
    AtomicFile,
    create_exclusively,
    make_output_folder,
    open_append,
    open_lock,
    open_output,
    write_atomically,
    write_output,
)
from pharoah_system.trusted_paths import UntrustedFolderError, find_folder, make_folder
from tests.harness.other_user import NOBODY, needs_root
from tests.harness.planted_folders import OLD_SCRATCH, Situation, ground, situations, swapped, taken_over, tree

SECRET = b"weights and data\n"
NAMES = ("out", *(f"out{ending}" for ending in OLD_SCRATCH), ".out.tmp")


def _stream(path: Path) -> None:
    with AtomicFile(path) as new:
        new.file.write(SECRET)


def _append(path: Path) -> None:
    descriptor = open_append(path)
    os.write(descriptor, SECRET)
    os.close(descriptor)


def _lock(path: Path) -> None:
    os.close(open_lock(path))


def _in_folder(path: Path) -> None:
    write_atomically(make_folder(path.parent / "out") / "file", SECRET)


def _in_output_folder(path: Path) -> None:
    make_output_folder(path / "below")
    write_output(path / "below" / "file", SECRET, mode=0o600)


WRITERS: dict[str, Callable[[Path], None]] = {
    "write_atomically": lambda path: write_atomically(path, SECRET),
    "AtomicFile": _stream,
    "write_output": lambda path: write_output(path, SECRET, mode=0o600),
    "create_exclusively": lambda path: create_exclusively(path, SECRET),
    "open_append": _append,
    "open_lock": _lock,
    "make_folder": _in_folder,
    "make_output_folder": _in_output_folder,
}


@needs_root
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("situation", situations(), ids=lambda one: one.name)
def test_nothing_is_taken_over(situation: Situation, writer: str) -> None:
    with ground() as made:
        situation.prepare(made, NAMES)
        home, before = tree(made.home), tree(made.shared)
        try:
            WRITERS[writer](made.folder / "out")
        except OSError as error:
            assert not situation.honest, error
            assert str(error.filename).startswith(str(made.folder)), "the error names the path"
        assert not taken_over(made, home, before, private=True)


@needs_root
@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_taken_over_while_names_are_swapped(writer: str) -> None:
    with ground() as made:
        home, before = tree(made.home), tree(made.shared)
        with swapped(made, NAMES):
            for _ in range(20):
                try:
                    WRITERS[writer](made.folder / "out")
                except OSError:
                    continue
        made.shared.chmod(0o700)
        assert tree(made.home) == home
        assert all(SECRET not in content for owner, _, content in tree(made.shared).values() if owner == NOBODY)
        assert not before


def test_an_own_link_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/file")
    write_output(tmp_path / "link", "first")
    write_output(tmp_path / "link", "second")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "folder" / "file").read_text() == "second"
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["file"]


def test_pipes_devices_and_descriptors_are_written_straight(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_output(tmp_path / "pipe", b"through a pipe")
    assert os.read(reader, 100) == b"through a pipe"
    os.close(reader)
    write_output(Path(os.devnull), b"nowhere")
    read_end, write_end = os.pipe()
    write_output(Path(f"/dev/fd/{write_end}"), b"through a descriptor")
    assert os.read(read_end, 100) == b"through a descriptor"
    os.close(read_end)
    os.close(write_end)
    for where in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        with pytest.raises(OSError, match="not a file"):
            write_output(where, b"", only_file=True)


def test_an_output_is_no_more_readable_than_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "out").touch(mode=0o600)
    write_output(tmp_path / "out", b"new")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_an_error_while_it_is_written_leaves_the_old_file(tmp_path: Path) -> None:
    write_output(tmp_path / "out", b"old")
    with pytest.raises(ValueError, match="ours"), open_output(tmp_path / "out") as file:
        file.write(b"half")
        raise ValueError("ours")
    assert (tmp_path / "out").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_log_with_a_second_name_or_for_others_is_refused(tmp_path: Path) -> None:
    os.close(open_append(tmp_path / "log"))
    (tmp_path / "second").hardlink_to(tmp_path / "log")
    with pytest.raises(PermissionError, match="hard link"):
        open_append(tmp_path / "log")
    (tmp_path / "second").unlink()
    (tmp_path / "log").chmod(0o620)
    with pytest.raises(PermissionError, match="chmod go-w"):
        open_append(tmp_path / "log")


def test_an_exclusive_file_that_cannot_be_written_is_removed(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        create_exclusively(tmp_path / "out", object())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    create_exclusively(tmp_path / "out", "new")
    with pytest.raises(FileExistsError, match="out"):
        create_exclusively(tmp_path / "out", "again")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_of_state_is_for_its_owner_alone(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    assert make_folder(folder / "runs") == (folder / "runs").resolve()
    if os.geteuid() == 0:
        os.chown(folder, 0, NOBODY)  # a group with other members
    folder.chmod(mode)
    with pytest.raises(UntrustedFolderError, match="chmod go-w"):
        find_folder(folder)
    folder.chmod(0o750)
    assert find_folder(folder) == folder.resolve()
    with pytest.raises(FileNotFoundError):
        find_folder(folder / "missing")


def test_a_folder_of_state_may_be_made_where_everybody_may_make_his_own(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(FileNotFoundError):
        find_folder(tmp_path / "state" / "runs")
    assert make_folder(tmp_path / "state" / "runs").stat().st_mode & 0o777 == 0o700


def test_a_group_of_which_nobody_else_is_a_member_may_write(tmp_path: Path) -> None:
    """`umask 002` and the group of a pod's volume."""
    group = next((one for one in os.getgroups() if one), os.getegid())
    if os.geteuid() == 0:
        group = 61_234  # a number that the machine has no name for
        os.setgroups([*(before := os.getgroups()), group])
    try:
        os.chown(tmp_path, -1, group)
        tmp_path.chmod(0o770)
        if os.geteuid() == 0:
            assert find_folder(tmp_path) == tmp_path.resolve()
            os.setgroups(before)
            with pytest.raises(UntrustedFolderError):
                find_folder(tmp_path)
    finally:
        if os.geteuid() == 0:
            os.setgroups(before)
