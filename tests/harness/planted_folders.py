"""Folders that another user of the machine has prepared, and what must not have changed afterwards. Needs root."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.other_user import NOBODY, become_nobody

PRECIOUS = b"precious content of the victim\n"
PLANTED = b"planted by another user\n"
OLD_SCRATCH = (".partial", ".tmp", ".new", ".lock", "~", ".part")
"""What programs like to append to a name while they write."""

Tree = dict[str, tuple[int, int, bytes]]
"""By path: the owner, the mode, and the content or where it leads."""


@dataclass
class Ground:
    """One case: the home of the victim, and a folder in which somebody else was first."""

    root: Path
    home: Path
    shared: Path
    folder: Path
    """Where the victim is asked to write: the shared folder, or a way to it."""
    pipes: list[int] = field(default_factory=list)
    """Open ends at which the other user reads."""

    def heard(self) -> bytes:
        """What has come through the pipes of the other user."""
        found = b""
        for pipe in self.pipes:
            with contextlib.suppress(OSError):
                found += os.read(pipe, 1 << 16)
        return found


@dataclass(frozen=True)
class Situation:
    """How the folder is prepared for names that can be foreseen, and whether writing there is allowed."""

    name: str
    prepare: Callable[[Ground, Sequence[str]], None]
    honest: bool = False


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """A victim's home with a precious file, and an empty folder of root's that everybody may enter."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        root = Path(name)
        root.chmod(0o755)
        home, shared = root / "home", root / "shared"
        home.mkdir(mode=0o700)
        shared.mkdir(mode=0o755)
        (home / "precious").write_bytes(PRECIOUS)
        (home / "precious").chmod(0o600)
        made = Ground(root, home, shared, shared)
        try:
            yield made
        finally:
            for pipe in made.pipes:
                os.close(pipe)


def tree(folder: Path) -> Tree:
    """Everything below a folder."""
    found: Tree = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = b""
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        found[str(path.relative_to(folder))] = (status.st_uid, status.st_mode, content)
    return found


def taken_over(made: Ground, home: Tree, before: Tree, *, private: bool) -> str:
    """What went wrong, in words; empty for nothing. `private`: nobody else may read what was written."""
    if tree(made.home) != home:
        return "the victim's home has changed"
    if heard := made.heard():
        return f"the other user has read {heard[:40]!r}"
    for name, (owner, mode, content) in tree(made.shared).items():
        if owner == NOBODY and stat.S_ISREG(mode) and before.get(name, (0, 0, b""))[2] != content:
            return f"{name} belongs to the other user and holds what the victim wrote"
        if owner != NOBODY and name not in before and stat.S_ISREG(mode) and content:
            if mode & 0o022:
                return f"{name} can be written by others ({mode:o})"
            if private and mode & 0o077:
                return f"{name} can be read by others ({mode:o})"
    return ""


def situations() -> tuple[Situation, ...]:
    """All of them; the last ones are of honest users."""
    return (
        Situation("links to a file", partial_of(_sticky, _link_to_file)),
        Situation("links to a new name in the home", partial_of(_sticky, _link_to_new)),
        Situation("links to the home", partial_of(_sticky, _link_to_home)),
        Situation("files of the other user", partial_of(_sticky, _file)),
        Situation("pipes", partial_of(_sticky, _pipe)),
        Situation("hard links", partial_of(_sticky, _hard_link)),
        Situation("folders of the other user", partial_of(_sticky, _folder)),
        Situation("closed files of the other user", partial_of(_sticky, _closed_file)),
        Situation("everybody's folder, links", partial_of(_open, _link_to_file)),
        Situation("everybody's folder, links to the home", partial_of(_open, _link_to_home)),
        Situation("the other user's folder", _of_other),
        Situation("the other user's folder, links", partial_of(_of_other, _link_to_file)),
        Situation("the other user's folder, files", partial_of(_of_other, _file)),
        Situation("a folder of a group", _of_group),
        Situation("the other user's link to the home", _link_on_the_way),
        Situation("the other user's link to a folder of his", _link_to_his_folder),
        Situation("own folder", _own, honest=True),
        Situation("own folder within everybody's", _own_within, honest=True),
        Situation("own link on the way", _own_link, honest=True),
    )


def partial_of(
    first: Callable[[Ground, Sequence[str]], None], plant: Callable[[Ground, Path], None]
) -> Callable[[Ground, Sequence[str]], None]:
    """The folder of `first`, with one thing planted under each name."""

    def prepare(made: Ground, names: Sequence[str]) -> None:
        first(made, names)
        for name in names:
            path = made.shared / name
            if _made_by_other(made.shared, path.parent):
                with contextlib.suppress(FileExistsError):
                    plant(made, path)

    return prepare


def _made_by_other(shared: Path, folder: Path) -> bool:
    """Make the other user's folders down to this one; whether no link or file stands in the way."""
    for above in reversed([folder, *folder.parents]):
        if above.is_relative_to(shared) and above != shared:
            with contextlib.suppress(FileExistsError):
                above.mkdir()
                os.chown(above, NOBODY, NOBODY)
            if not stat.S_ISDIR(above.lstat().st_mode):
                return False
    return True


def _sticky(made: Ground, _: Sequence[str]) -> None:
    made.shared.chmod(0o1777)


def _open(made: Ground, _: Sequence[str]) -> None:
    made.shared.chmod(0o777)


def _of_other(made: Ground, _: Sequence[str]) -> None:
    made.shared.chmod(0o777)
    os.chown(made.shared, NOBODY, NOBODY)


def _of_group(made: Ground, _: Sequence[str]) -> None:
    os.chown(made.shared, 0, NOBODY)
    made.shared.chmod(0o775)


def _own(made: Ground, _: Sequence[str]) -> None:
    made.shared.chmod(0o700)


def _own_within(made: Ground, _: Sequence[str]) -> None:
    made.shared.chmod(0o1777)
    made.folder = made.shared / "mine"
    made.folder.mkdir(mode=0o755)


def _own_link(made: Ground, _: Sequence[str]) -> None:
    made.folder = made.root / "way"
    made.folder.symlink_to(made.shared)


def _link_on_the_way(made: Ground, _: Sequence[str]) -> None:
    made.folder = made.root / "way"
    made.folder.symlink_to(made.home)
    os.lchown(made.folder, NOBODY, NOBODY)


def _link_to_his_folder(made: Ground, names: Sequence[str]) -> None:
    _of_other(made, names)
    made.folder = made.root / "way"
    made.folder.symlink_to(made.shared)
    os.lchown(made.folder, NOBODY, NOBODY)


def _link_to_file(made: Ground, path: Path) -> None:
    _given_link(path, made.home / "precious")


def _link_to_new(made: Ground, path: Path) -> None:
    _given_link(path, made.home / "new")


def _link_to_home(made: Ground, path: Path) -> None:
    _given_link(path, made.home)


def _given_link(path: Path, target: Path) -> None:
    path.symlink_to(target)
    os.lchown(path, NOBODY, NOBODY)


def _hard_link(made: Ground, path: Path) -> None:
    path.hardlink_to(made.home / "precious")


def _file(_: Ground, path: Path) -> None:
    path.touch()
    path.write_bytes(PLANTED)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o666)


def _closed_file(made: Ground, path: Path) -> None:
    _file(made, path)
    path.chmod(0o600)


def _folder(_: Ground, path: Path) -> None:
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o777)


def _pipe(made: Ground, path: Path) -> None:
    os.mkfifo(path)
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o666)
    made.pipes.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))


@contextlib.contextmanager
def swapped(made: Ground, names: Sequence[str]) -> Iterator[None]:
    """Another user's process, which puts links to the precious file, files of its own and the names of what is being
    written in each other's place as fast as it can, in a folder where it may."""
    _open(made, names)
    process = multiprocessing.get_context("fork").Process(target=_swap, args=(made, names), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _swap(made: Ground, names: Sequence[str]) -> None:
    become_nobody()
    folder, target = made.shared, made.home / "precious"
    while True:
        for name in (*names, *_names_in(folder)):
            with contextlib.suppress(OSError):
                (folder / "link").symlink_to(target)
            with contextlib.suppress(OSError):
                (folder / "link").rename(folder / name)
            with contextlib.suppress(OSError):
                (folder / "file").write_bytes(PLANTED)
                (folder / "file").chmod(0o666)
                (folder / "file").rename(folder / name)


def _names_in(folder: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return os.listdir(folder)  # noqa: PTH208 - names are wanted
    return []
