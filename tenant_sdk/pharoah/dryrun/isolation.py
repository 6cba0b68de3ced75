"""A sandbox for one process, made of Linux namespaces and overlay file systems, where they are allowed.

Inside, every file can be read and written and nothing written is kept; the network is a loopback of its own; other
processes cannot be seen or signalled, and every process inside ends with the sandbox. It works as root and, where user
namespaces are on (most distributions, few containers), for everybody else. Standard library and ctypes only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1
_PR_SET_PDEATHSIG = 1

# File systems of the kernel are shown unchanged. Every other file system gets a writable layer of its own.
_KERNEL = {
    "proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "devtmpfs", "securityfs", "debugfs", "tracefs", "bpf",
    "configfs", "pstore", "hugetlbfs", "nsfs", "binfmt_misc", "fusectl", "efivarfs", "selinuxfs",
}  # fmt: skip
_SCRATCH_BYTES = 256 << 20
_COPIED_BYTES = 16 << 20
"""Limit for copies of the files of rebuilt folders; files beyond it are shown read-only."""


class IsolationError(OSError):
    """This machine does not allow a sandbox. The message names the step that was refused."""


def isolate() -> None:
    """Put this process, and all that it will start, into a sandbox for good. Call it before there are threads.

    Returns in a descendant with its own process numbers; the caller's process stays outside, waits, and ends as the
    descendant ends. Raises IsolationError in the caller's unchanged process when there can be no sandbox.
    """
    read_end, write_end = os.pipe()
    child = _fork()
    if child:
        os.close(write_end)
        refused = os.read(read_end, 512)  # one message: processes in between keep the pipe open
        os.close(read_end)
        if refused == _READY:
            _wait_for(child)
        os.waitpid(child, 0)
        raise IsolationError(0, refused.decode(errors="replace") or "the process in the sandbox died")
    os.close(read_end)
    try:
        _build(ctypes.CDLL(None, use_errno=True))
    except BaseException as fault:  # noqa: BLE001 - reported to the process that waits outside
        os.write(write_end, str(fault).encode()[:400])
        os._exit(1)
    os.write(write_end, _READY)
    os.close(write_end)


_READY = b"\0ready"


def _fork() -> int:
    """`os.fork` past the handlers of libraries, where the C library can (glibc 2.34).

    A forked child of the job has none of the job's threads, and gRPC's handlers wait for its own before they let a
    process fork again. A process with one thread does not need such handlers.
    """
    fork = getattr(ctypes.PyDLL(None, use_errno=True), "_Fork", os.fork)
    if (child := int(fork())) < 0:
        raise IsolationError(ctypes.get_errno(), "no process may be started")
    return child


def _build(libc: ctypes.CDLL) -> None:
    folder = Path.cwd()
    _die_with_parent(libc)
    mapped = _unshare(libc)
    _mount(libc, "none", Path("/"), "", _MS_REC | _MS_PRIVATE)
    _copy_file_systems(libc, folder, mapped)
    os.chdir(folder)
    _raise_loopback()
    _start_over(libc)


def _unshare(libc: ctypes.CDLL) -> bool:
    """Leave the machine's namespaces; True when that took a user namespace."""
    spaces = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
    user, group = os.getuid(), os.getgid()
    if libc.unshare(spaces) == 0:
        return False
    if libc.unshare(spaces | _CLONE_NEWUSER) != 0:
        raise IsolationError(ctypes.get_errno(), "namespaces are not allowed here")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True


def _mounts() -> dict[Path, str]:
    """Mount point to the kind of file system; of several mounts on one point the last, which hides the others."""
    found: dict[Path, str] = {}
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        before, _, after = line.partition(b" - ")
        point = before.split(b" ")[4].decode("unicode_escape").encode("latin-1")  # \\040 is a blank
        found[Path(os.fsdecode(point))] = after.split(b" ")[0].decode()
    return found


def _copy_file_systems(libc: ctypes.CDLL, folder: Path, mapped: bool) -> None:
    """Build the machine's tree once more with writable layers on top, and make it this process's root."""
    scratch = _empty_folder()
    tree = _Tree(libc, scratch, _mounts(), mapped)
    _mount(libc, "tmpfs", scratch, "tmpfs", 0, f"size={_SCRATCH_BYTES},mode=0755")
    (scratch / "root").mkdir()
    tree.show(Path("/"), scratch / "root")
    if any(folder.is_relative_to(path) for path in tree.read_only):
        raise IsolationError(0, f"no writable layer fits over {folder}")
    _mount(libc, "tmpfs", scratch / "root/dev/shm", "tmpfs", 0, f"size={_SCRATCH_BYTES},mode=1777")
    for device in Path("/dev").glob("nvidia*"):
        if not device.is_dir():
            _mount(libc, "/dev/null", scratch / "root" / device.relative_to("/"), "", _MS_BIND)
    os.chroot(scratch / "root")


def _empty_folder() -> Path:
    """An empty folder to mount the layers on, so that they hide nothing."""
    for path in (Path("/mnt"), Path("/media"), Path("/srv"), Path("/opt"), Path("/home"), Path("/boot")):
        if path.is_dir() and os.access(path, os.R_OK) and not any(path.iterdir()):
            return path
    raise IsolationError(0, "no empty folder like /mnt to mount on")


class _Tree:
    """Shows the mounts of this machine under another root."""

    def __init__(self, libc: ctypes.CDLL, scratch: Path, mounts: dict[Path, str], mapped: bool) -> None:
        self.read_only: list[Path] = []
        """Paths without a writable layer."""
        self._libc = libc
        self._scratch = scratch
        self._mounts = mounts
        # Only this attribute lets an overlay in a user namespace mark a folder as replaced.
        self._options = ",userxattr" if mapped else ""
        self._holders = {parent for point in mounts for parent in point.parents}
        self._layers = 0
        self._copied = 0

    def show(self, path: Path, target: Path) -> None:
        """Make `target` look like `path`. Folders with mounts beneath are rebuilt, as no layer fits over them."""
        if path == Path("/dev") or self._mounts.get(path) in _KERNEL:
            self._bind(path, target, read_only=path not in (Path("/dev"), Path("/proc")))
        elif path not in self._holders and path != self._scratch:
            self._layer(path, target)
        elif path != self._scratch:
            for name in self._entries(path):
                try:
                    self._entry(path / name, target / name)
                except OSError:
                    pass  # a FUSE mount of another user, a stale handle, a file that was just deleted

    def _entries(self, path: Path) -> set[str]:
        """Names in a folder. For a folder that cannot be listed, the names of the mounts in it."""
        known = {p.relative_to(path).parts[0] for p in self._mounts if p != path and p.is_relative_to(path)}
        try:
            return known | set(os.listdir(path))  # noqa: PTH208 - names are what is wanted
        except OSError:
            return known

    def _entry(self, path: Path, target: Path) -> None:
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_dir():
            target.mkdir()
            target.chmod(path.stat().st_mode & 0o7777)
            self.show(path, target)
        elif self._may_copy(path):
            shutil.copy(path, target)
        else:
            target.touch()
            self._bind(path, target, read_only=True)

    def _may_copy(self, path: Path) -> bool:
        if path in self._mounts or not path.is_file() or not os.access(path, os.R_OK):
            return False
        self._copied += path.stat().st_size
        return self._copied <= _COPIED_BYTES

    def _layer(self, path: Path, target: Path) -> None:
        """A writable layer; read-only where none can be stacked (single files, some network file systems)."""
        self._layers += 1
        upper, work = (self._scratch / f"{self._layers}-{name}" for name in ("upper", "work"))
        if path.is_dir():
            upper.mkdir()
            upper.chmod(path.stat().st_mode & 0o7777)
            work.mkdir()
            try:
                options = f"lowerdir={_escaped(path)},upperdir={upper},workdir={work}{self._options}"
                _mount(self._libc, "overlay", target, "overlay", 0, options)
                return
            except IsolationError:
                pass
        self.read_only.append(path)
        self._bind(path, target, read_only=True)

    def _bind(self, path: Path, target: Path, *, read_only: bool) -> None:
        _mount(self._libc, str(path), target, "", _MS_BIND | _MS_REC)
        if read_only:
            beneath = [target / p.relative_to(path) for p in self._mounts if p != path and p.is_relative_to(path)]
            for point in [target, *beneath]:
                # Flags a mount has already may not be dropped in a user namespace.
                kept = os.statvfs(point).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC)
                _mount(self._libc, "none", point, "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept)


def _escaped(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _mount(libc: ctypes.CDLL, source: str, target: Path, kind: str, flags: int, data: str = "") -> None:
    status = libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), os.fsencode(data)
    )
    if status != 0:
        error = ctypes.get_errno()
        raise IsolationError(error, f"mounting {kind or source} on {target}: {os.strerror(error)}")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _start_over(libc: ctypes.CDLL) -> None:
    """Continue as process 2 of a new PID namespace. Process 1 only waits; when it ends, the kernel ends all others."""
    first = _fork()
    if first:
        _wait_for(first)
    _die_with_parent(libc)
    try:
        _mount(libc, "proc", Path("/proc"), "proc", 0)
    except IsolationError:
        pass  # masked, as in a container: outer process numbers stay visible, the processes cannot be reached
    else:
        _mount(libc, "/proc/sys", Path("/proc/sys"), "", _MS_BIND)
        _mount(libc, "none", Path("/proc/sys"), "", _MS_BIND | _MS_REMOUNT | _MS_RDONLY | os.ST_NOSUID | os.ST_NODEV)
    second = _fork()
    if second:
        _wait_for(second)
    _die_with_parent(libc)


def _die_with_parent(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for(child: int) -> None:
    """End in the same way as `child` ends. Never returns."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        os.kill(os.getpid(), -status)  # process 1 of a namespace ignores it: then the exit code shows it
    os._exit(status if status >= 0 else 128 - status)
