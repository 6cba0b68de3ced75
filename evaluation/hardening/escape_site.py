"""What a dry run must not reach: files, sockets, a process, a terminal and others, and how to see that it did."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pharoah.dryrun.mounts import IsolationError, MountFlag, mount, unmount

SITE = "PHAROAH_ESCAPE_SITE"
"""Variable with the site, for the attempts."""
_VICTIM = """
import ctypes, sys
buffer = ctypes.create_string_buffer(b"untouched" + bytes(55))
print(ctypes.addressof(buffer), flush=True)
sys.stdin.read()
"""
_BUFFER_BYTES = 64
SHARED_KEY = 0x50686172
"""Key of the System V objects that attempts make."""


@dataclass(frozen=True)
class Site:
    """Where the things outside are, as an attempt finds them."""

    folder: str
    nonce: str
    victim_pid: int
    victim_buffer: int
    terminal: str
    terminal_device: int
    tcp_port: int
    udp_port: int
    streams: tuple[str, ...]
    """Sockets that listen: in a plain folder, in a folder with mounts beneath (where mounting is allowed), abstract."""
    datagrams: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> Site:
        """The site of the process that started this one."""
        return cls(**json.loads(os.environ[SITE]))


class Outside:
    """The machine around a dry run. Leave the `with` block to end and remove everything."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="escape-", ignore_cleanup_errors=True))
        )
        self.nonce = secrets.token_hex(6)
        self._streams: list[socket.socket] = []
        self._datagrams: list[socket.socket] = []
        self._reached = 0

    def __enter__(self) -> Outside:
        self._terminal, self._slave = map(self._own, os.openpty())
        tty.setraw(self._slave)
        terminal = os.ttyname(self._slave)
        mounted = _mounts_allowed() and _prepare_mounts(self.folder)
        (self.folder / "file").write_text("untouched")
        (self.folder / "inner").mkdir()
        os.mkfifo(self.folder / "pipe")
        (self.folder.parent / f"link-{self.nonce}").symlink_to(self.folder)
        self._stack.callback((self.folder.parent / f"link-{self.nonce}").unlink)
        self._pipe = self._own(os.open(self.folder / "pipe", os.O_RDWR | os.O_NONBLOCK))
        os.write(self._pipe, b"untouched")
        self._victim = self._start_victim()
        buffer = int(self._victim.stdout.readline()) if self._victim.stdout else 0
        places = [str(self.folder / "socket")] + ([str(self.folder / "holder" / "socket")] if mounted else [])
        for place in (*places, f"\0stream-{self.nonce}"):
            self._streams.append(self._listening(socket.AF_UNIX, socket.SOCK_STREAM, place))
        logs = [str(self.folder / "log")] + (["/dev/log"] if mounted else [])
        for place in (*logs, f"\0datagram-{self.nonce}"):
            self._datagrams.append(self._listening(socket.AF_UNIX, socket.SOCK_DGRAM, place))
        self._streams.append(self._listening(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)))
        self._datagrams.append(self._listening(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)))
        device = os.fstat(self._slave).st_rdev
        for node in [self.folder / "node"] + ([Path("/dev/disk-of-this-machine")] if mounted else []):
            with contextlib.suppress(PermissionError):
                os.mknod(node, stat.S_IFCHR | 0o666, device)
        self.site = Site(
            str(self.folder), self.nonce, self._victim.pid, buffer, terminal, device,
            self._streams[-1].getsockname()[1], self._datagrams[-1].getsockname()[1],
            (*places, f"\0stream-{self.nonce}"), (*logs, f"\0datagram-{self.nonce}"),
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        self._victim.kill()
        self._victim.communicate()
        for listener in (*self._streams, *self._datagrams):
            listener.close()
        with contextlib.suppress(IsolationError):  # an attempt may have done it already
            unmount(self.folder / "holder" / "beneath")
        self._stack.close()

    def _own(self, descriptor: int) -> int:
        self._stack.callback(os.close, descriptor)
        return descriptor

    def _start_victim(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", _VICTIM, self.nonce]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _listening(self, family: int, kind: int, address: str | tuple[str, int]) -> socket.socket:
        listener = socket.socket(family, kind)
        listener.bind(address)
        if kind == socket.SOCK_STREAM:
            listener.listen(16)
        listener.setblocking(False)
        return listener

    def look(self) -> dict[str, object]:
        """Everything that an attempt could change. Two equal looks mean that nothing got out."""
        return {
            "files": {str(path): _attributes(path) for path in sorted(self.folder.rglob("*"))},
            "interpreter": _attributes(Path(sys.executable).resolve(), content=False),
            "null device": _attributes(Path("/dev/null"), content=False),
            "pipe": _waiting_bytes(self._pipe),
            "terminal": _waiting_bytes(self._terminal),
            "sockets": self._count_reached(),
            "process": self._victim_state(),
            "shared memory": sorted(name for name in os.listdir("/dev/shm") if self.nonce in name),  # noqa: PTH208
            "system v": [line.split()[0] for line in _system_v() if line.split()[0] == str(SHARED_KEY)],
            "message queue": _queue_exists(f"/{self.nonce}"),
            "keys": self.nonce in Path("/proc/keys").read_text(),
            "host name": socket.gethostname(),
            "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
            "processes": len(self.left_processes()),
        }

    def left_processes(self) -> list[int]:
        """Processes that a script has started and that still run: they have the site in their environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.nonce.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
        return found

    def _victim_state(self) -> object:
        pid = self._victim.pid
        if self._victim.poll() is not None:
            return "ended"
        with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
            memory.seek(self.site.victim_buffer)
            content = memory.read(_BUFFER_BYTES)
        status = Path(f"/proc/{pid}/status").read_text()
        kept = [line for line in status.splitlines() if line.startswith(("State:\tT", "TracerPid", "Cpus_allowed:"))]
        limits, score = Path(f"/proc/{pid}/limits").read_text(), Path(f"/proc/{pid}/oom_score_adj").read_text()
        return content, kept, limits, score, os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid)

    def _count_reached(self) -> int:
        for listener in self._streams:
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.accept()[0].close()
                    self._reached += 1
        for listener in self._datagrams:
            with contextlib.suppress(BlockingIOError):
                while True:
                    listener.recv(4096)
                    self._reached += 1
        return self._reached


def _attributes(path: Path, content: bool = True) -> tuple[object, ...]:
    seen = path.lstat()
    text = path.read_bytes() if content and stat.S_ISREG(seen.st_mode) else b""
    extended = [] if stat.S_ISLNK(seen.st_mode) else sorted(os.listxattr(path))
    return seen.st_mode, seen.st_uid, seen.st_gid, seen.st_mtime_ns, seen.st_nlink, extended, text


def _waiting_bytes(descriptor: int) -> int:
    """Bytes that a pipe or a terminal holds."""
    count = ctypes.c_int()
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count.value


def _system_v() -> Iterator[str]:
    for kind in ("shm", "sem", "msg"):
        yield from Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]


def _queue_exists(name: str) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    queue = library.mq_open(name.encode(), os.O_RDONLY)
    if queue >= 0:
        os.close(queue)
    return bool(queue >= 0)


def _mounts_allowed() -> bool:
    """Whether this process could leave the machine's mounts, so that it can make mounts that only it sees."""
    return os.geteuid() == 0 and ctypes.CDLL(None).unshare(0x00020000 | 0x04000000) == 0  # CLONE_NEWNS, CLONE_NEWUTS


def _prepare_mounts(folder: Path) -> bool:
    """A folder with a mount beneath it, and a folder /dev of our own that also holds sockets and devices."""
    try:
        mount("none", Path("/"), flags=MountFlag.RECURSIVE | MountFlag.PRIVATE)
        beneath = folder / "holder" / "beneath"
        beneath.mkdir(parents=True)
        mount("tmpfs", beneath, "tmpfs", 0, "size=64k")
        with tempfile.TemporaryDirectory() as kept:
            mount("/dev", Path(kept), flags=MountFlag.BIND | MountFlag.RECURSIVE)
            mount("tmpfs", Path("/dev"), "tmpfs", 0, "size=64k,mode=0755")
            for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx"):
                (Path("/dev") / name).touch()
                mount(Path(kept) / name, Path("/dev") / name, flags=MountFlag.BIND)
            for name in ("pts", "shm"):
                (Path("/dev") / name).mkdir()
                mount(Path(kept) / name, Path("/dev") / name, flags=MountFlag.BIND)
            Path("/dev/fd").symlink_to("/proc/self/fd")
            unmount(Path(kept))
    except OSError:
        return False
    return True
