"""The files that a dry run sees: those of the machine under another root, with writable layers that are discarded.

Nothing in it leads to another program: no sockets, no pipes with a name, no devices but harmless ones.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from pharoah.dryrun.device_folder import DEVICES, make_device_folder
from pharoah.dryrun.mounts import DATA, IsolationError, MountFlag, bind_read_only, escape, mount, mounts
from pharoah.dryrun.unix_sockets import list_bound_names

PROCESSES = Path("/proc")
"""Shown later, by the first process of the new PID namespace."""
_SHOWN_READ_ONLY = {"sysfs", "cgroup", "cgroup2"}
"""File systems of the kernel that libraries read: processors, their caches, limits of memory."""
_LEFT_OUT = {
    "proc", "devpts", "mqueue", "devtmpfs", "securityfs", "debugfs", "tracefs", "bpf", "configfs", "pstore",
    "hugetlbfs", "nsfs", "binfmt_misc", "fusectl", "efivarfs", "selinuxfs",
}  # fmt: skip
"""File systems of the kernel that lead to devices, to other processes, or to the kernel's own state."""
_SCRATCH_BYTES = 256 << 20
_COPIED_BYTES = 16 << 20
"""Limit for copies of the files of rebuilt folders; files beyond it are shown read-only."""
_SEARCHED_ENTRIES = 20_000
"""How many entries of a folder without a layer are searched for sockets and pipes; at 1 to 2 us for each."""


def list_bound_sockets() -> frozenset[Path]:
    """Paths of the sockets that programs of this network namespace listen on."""
    try:
        names = list_bound_names()
    except OSError:
        return frozenset()
    return frozenset(Path(os.fsdecode(name)) for name in names if name.startswith(b"/"))


def build_file_view(folder: Path, sockets: frozenset[Path], *, mapped: bool) -> Path:
    """Build the view for a program in a folder, and give its root, in which /proc is still empty. Raises OSError.

    `mapped` states that this is a user namespace.
    """
    scratch = _empty_folder()
    known = mounts()
    mount("tmpfs", scratch, "tmpfs", DATA, f"size={_SCRATCH_BYTES},mode=0755")
    root = scratch / "root"
    root.mkdir()
    mount(root, root, flags=MountFlag.BIND)  # only a mount can become the root
    view = _FileView(scratch, known, sockets, mapped=mapped)
    view.show(Path("/"), root)
    if any(folder.is_relative_to(path) for path in view.read_only):
        raise IsolationError(0, f"no writable layer fits over {folder}")
    return root


def _empty_folder() -> Path:
    """An empty folder to mount the layers on, so that they hide nothing."""
    for path in (Path("/mnt"), Path("/media"), Path("/srv"), Path("/opt"), Path("/home"), Path("/boot")):
        if path.is_dir() and os.access(path, os.R_OK) and not any(path.iterdir()):
            return path
    raise IsolationError(0, "no empty folder like /mnt to mount on")


class _FileView:
    """Shows the mounts of this machine under another root."""

    def __init__(self, scratch: Path, known: dict[Path, str], sockets: frozenset[Path], *, mapped: bool) -> None:
        self.read_only: list[Path] = []
        """Paths without a writable layer."""
        self._scratch = scratch
        self._mounts = known
        self._sockets = sockets
        # Only this attribute lets an overlay in a user namespace mark a folder as replaced.
        self._options = ",userxattr" if mapped else ""
        self._holders = {parent for point in known for parent in point.parents}
        self._layers = 0
        self._copied = 0
        self._blank = scratch / "blank"
        self._blank.touch()

    def show(self, path: Path, target: Path) -> None:
        """Make `target` look like `path`. Folders with mounts beneath are rebuilt, as no layer fits over them."""
        kind = self._mounts.get(path)
        if path == DEVICES:
            make_device_folder(target, _SCRATCH_BYTES)
        elif path == PROCESSES or path == self._scratch or kind in _LEFT_OUT:
            pass
        elif kind in _SHOWN_READ_ONLY:
            self._show_kernel(path, target)
        elif path not in self._holders:
            self._layer(path, target)
        else:
            for name in self._entries(path):
                self._entry(path / name, target / name)

    def _entries(self, path: Path) -> set[str]:
        """Names in a folder. For a folder that cannot be listed, the names of the mounts in it."""
        known = {point.relative_to(path).parts[0] for point in self._beneath(path)}
        try:
            return known | set(os.listdir(path))  # noqa: PTH208 - names are what is wanted
        except OSError:
            return known

    def _beneath(self, path: Path) -> list[Path]:
        return [point for point in self._mounts if point != path and point.is_relative_to(path)]

    def _entry(self, path: Path, target: Path) -> None:
        """Show one entry of a rebuilt folder, or leave it out: only regular files, folders and links are shown."""
        try:
            kind = path.lstat().st_mode
            if stat.S_ISLNK(kind):
                target.symlink_to(path.readlink())
            elif stat.S_ISDIR(kind):
                target.mkdir()
                target.chmod(stat.S_IMODE(kind))
            elif not stat.S_ISREG(kind) or self._mounts.get(path) in _LEFT_OUT:
                return
            elif self._may_copy(path):
                target.write_bytes(path.read_bytes())
                target.chmod(stat.S_IMODE(kind))
            else:
                target.touch()
                bind_read_only(path, target)
        except OSError:
            return  # a FUSE mount of another user, a stale handle, a file that was just deleted
        if stat.S_ISDIR(kind):
            self.show(path, target)

    def _may_copy(self, path: Path) -> bool:
        if path in self._mounts or not os.access(path, os.R_OK):
            return False
        self._copied += path.stat().st_size
        return self._copied <= _COPIED_BYTES

    def _layer(self, path: Path, target: Path) -> None:
        """A writable layer; read-only where none can be stacked (some network file systems)."""
        self._layers += 1
        upper, work = (self._scratch / f"{self._layers}-{name}" for name in ("upper", "work"))
        try:
            upper.mkdir()
            upper.chmod(stat.S_IMODE(path.stat().st_mode))
            work.mkdir()
            options = f"lowerdir={escape(path)},upperdir={upper},workdir={work}{self._options}"
            mount("overlay", target, "overlay", DATA, options)
        except OSError:
            self.read_only.append(path)
            self._show_read_only(path, target)

    def _show_read_only(self, path: Path, target: Path) -> None:
        """A folder without a layer: what leads to another program in it is covered by an empty file."""
        try:
            bind_read_only(path, target)
        except OSError:
            return  # it cannot be shown: the folder is empty
        beneath = (found for found in self._sockets if found.is_relative_to(path))
        for found in {*beneath, *_sockets_and_pipes(path)}:
            if os.path.lexists(target / found.relative_to(path)):
                mount(self._blank, target / found.relative_to(path), flags=MountFlag.BIND)

    def _show_kernel(self, path: Path, target: Path) -> None:
        """Files of the kernel, read-only; other file systems of the kernel beneath are covered by empty folders."""
        beneath = self._beneath(path)
        bind_read_only(path, target, beneath, DATA | MountFlag.NO_EXECUTION)
        for point in beneath:
            hidden = target / point.relative_to(path)
            if self._mounts[point] in _LEFT_OUT and hidden.is_dir():
                mount("tmpfs", hidden, "tmpfs", DATA | MountFlag.READ_ONLY, "size=4k")


def _sockets_and_pipes(folder: Path) -> Iterator[Path]:
    """Sockets and pipes among the first entries of a folder; folders closest to it are searched first."""
    waiting = deque([folder])
    for entry in islice(_walk(waiting), _SEARCHED_ENTRIES):
        try:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                yield Path(entry.path)
        except OSError:
            pass  # deleted meanwhile


def _walk(waiting: deque[Path]) -> Iterator[os.DirEntry[str]]:
    while waiting:
        try:
            with os.scandir(waiting.popleft()) as entries:
                yield from entries
        except OSError:
            pass  # a folder of somebody else
