"""A sandbox for one process, made of Linux namespaces and overlay file systems, where they are allowed.

Inside, every file can be read and written and nothing written is kept; the network is a loopback of its own; other
processes cannot be seen or signalled, and every process inside ends with the sandbox. It works as root and, where user
namespaces are on (most distributions, few containers), for everybody else. Standard library and ctypes only.

    caller (waits) -> builder (unshares, builds the view, waits) -> process 1 (changes the root, waits) -> process 2
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from pharoah.dryrun import capabilities
from pharoah.dryrun.file_view import PROCESSES, build_file_view, list_bound_sockets
from pharoah.dryrun.kernel_calls import hide_memory
from pharoah.dryrun.mounts import IsolationError as IsolationError
from pharoah.dryrun.mounts import MountFlag, bind_read_only, change_root, mount, mounts
from pharoah.dryrun.refused_calls import in_namespaces
from pharoah.dryrun.sandbox_mode import SandboxMode
from pharoah.dryrun.seccomp import restrict
from pharoah.dryrun.system_calls import Architecture
from pharoah_system.parent_process import end_with_parent

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC, _CLONE_NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
_CLONE_NEWPID, _CLONE_NEWNET = 0x20000000, 0x40000000
_NAMESPACES = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
"""A cgroup namespace is left out: libraries would look for their limits in the wrong place."""
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def isolate(*, user_namespace: bool = False) -> SandboxMode:
    """Put this process, and all that it will start, into a sandbox for good. Call it before there are threads.

    Returns in a descendant with its own process numbers; the caller's process stays outside, waits, and ends as the
    descendant ends. With `user_namespace` root is treated like everybody else. Raises IsolationError in the caller's
    unchanged process when there can be no sandbox.
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
        mode = _build(user_namespace)
    except BaseException as fault:  # noqa: BLE001 - reported to the process that waits outside
        os.write(write_end, str(fault).encode()[:400])
        os._exit(1)
    os.write(write_end, _READY)
    os.close(write_end)
    return mode


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


def _build(user_namespace: bool) -> SandboxMode:
    """Returns in process 2 of the sandbox."""
    Architecture.from_this_process()  # without a filter for system calls there is no sandbox
    folder, kept, sockets = Path.cwd(), capabilities.about_files(), list_bound_sockets()
    end_with_parent()
    mode = _unshare(user_namespace)
    mount("none", Path("/"), flags=MountFlag.RECURSIVE | MountFlag.PRIVATE)
    root = build_file_view(folder, sockets, mapped=mode is SandboxMode.USER)
    _raise_loopback()
    continue_in_child()
    _show_processes(root / PROCESSES.relative_to("/"))
    change_root(root)
    continue_in_child()
    os.chdir(folder)
    capabilities.keep_only(kept)
    restrict(in_namespaces())
    return mode


def _unshare(user_namespace: bool) -> SandboxMode:
    """Leave the machine's namespaces."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if not user_namespace and libc.unshare(_NAMESPACES) == 0:
        return SandboxMode.ROOT
    if libc.unshare(_NAMESPACES | _CLONE_NEWUSER) != 0:
        raise IsolationError(ctypes.get_errno(), "namespaces are not allowed here")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return SandboxMode.USER


def continue_in_child() -> None:
    """Go on in a child with one thread. This process waits, and ends as the child ends.

    The first child after `unshare` is process 1: when it ends, the kernel ends all others.
    """
    child = _fork()
    if child:
        os.chdir("/")  # it must not hold a folder of the machine
        hide_memory()
        _wait_for(child)
    end_with_parent()


def _show_processes(target: Path) -> None:
    """Process numbers of this namespace. Read-only: files in /proc change the whole machine."""
    flags = MountFlag.READ_ONLY | MountFlag.NO_SUID | MountFlag.NO_DEVICES | MountFlag.NO_EXECUTION
    try:
        mount("proc", target, "proc", flags)
    except IsolationError:
        # Masked, as in a container: outer process numbers stay visible, and a process of a user namespace may not
        # look into those outside of it.
        beneath = [point for point in mounts() if point != PROCESSES and point.is_relative_to(PROCESSES)]
        bind_read_only(PROCESSES, target, beneath, flags)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", _IFF_UP))


def _wait_for(child: int) -> None:
    """End in the same way as `child` ends. Never returns."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        os.kill(os.getpid(), -status)  # process 1 of a namespace ignores it: then the exit code shows it
    os._exit(status if status >= 0 else 128 - status)
