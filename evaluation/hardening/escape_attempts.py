"""Attempts to get out of a dry run: each tries to change one thing of the machine, by code in C or by a child process.

The functions run inside a dry run. Most go past Python's own functions, whose side effects are named by an audit hook.
An attempt that fails raises an error or does nothing; `escape_site` sees whether it had an effect.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from evaluation.hardening.escape_site import SHARED_KEY, Site
from pharoah.dryrun.system_calls import SystemCall

Attempt = Callable[[Site], object]
_AT_FDCWD = -100
SIGNAL = signal.SIGUSR1
ATTEMPTS: dict[str, Attempt] = {}
NEVER_ALONE = {
    "joins_a_real_rendezvous", "changes_the_interpreter", "changes_open_devices", "makes_system_v_objects",
    "makes_a_message_queue", "adds_a_key", "sets_the_host_name", "turns_the_core_pattern", "writes_to_control_groups",
    "uncovers_what_is_mounted_over", "goes_through_the_root_of_a_process", "attaches_to_shared_memory_of_others",
    "runs_a_program_with_privileges", "slows_a_process", "sends_to_the_kernel", "loads_a_program_into_the_kernel",
    "gets_capabilities_in_a_new_namespace", "reaches_the_host_of_a_virtual_machine",
}  # fmt: skip
"""Attempts that are not made without a sandbox: they would change this machine for others or for good, or hang."""
MODULES = ("escape_attempts", "more_escape_attempts")


def attempt(function: Attempt) -> Attempt:
    """Register an attempt under its name."""
    ATTEMPTS[function.__name__] = function
    return function


def all_attempts() -> dict[str, Attempt]:
    """The attempts of all modules."""
    for name in MODULES:
        importlib.import_module(f"evaluation.hardening.{name}")
    return importlib.import_module("evaluation.hardening.escape_attempts").ATTEMPTS  # type: ignore[no-any-return]


def libc() -> ctypes.CDLL:
    """The C library."""
    return ctypes.CDLL(None, use_errno=True)


def call(number: SystemCall, *arguments: object) -> int:
    """A system call past the C library."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(libc().syscall(ctypes.c_long(number.number_here()), *passed))


def forked(work: Callable[[], object]) -> None:
    """Do something in a child process that C code starts, or here where it cannot."""
    child = libc().fork()
    if child > 0:
        os.waitpid(child, 0)
        return
    try:
        work()
    finally:
        if child == 0:
            os._exit(0)


# ---- sockets ------------------------------------------------------------------------------------------------------


def _address(path: str) -> bytes:
    return struct.pack("=H", socket.AF_UNIX) + os.fsencode(path) + (b"" if path.startswith("\0") else b"\0")


def _connect_in_c(path: str) -> None:
    descriptor = libc().socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
    libc().connect(descriptor, _address(path), len(_address(path)))


@attempt
def connects_to_a_socket_file(site: Site) -> None:
    _connect_in_c(site.streams[0])


@attempt
def connects_to_a_socket_in_a_folder_with_mounts(site: Site) -> None:
    for path in site.streams[1:-1]:
        _connect_in_c(path)


@attempt
def connects_to_an_abstract_socket(site: Site) -> None:
    _connect_in_c(site.streams[-1])


@attempt
def connects_by_a_child_process(site: Site) -> None:
    code = "import socket, sys\nfor p in sys.argv[1:]:\n s = socket.socket(socket.AF_UNIX)\n s.connect_ex(p)"
    subprocess.run([sys.executable, "-c", code, *(path for path in site.streams if "\0" not in path)])


@attempt
def writes_to_the_system_log(site: Site) -> None:
    libc().openlog(b"escape", 8 | 1, 1 << 3)
    libc().syslog(3, b"%s", site.nonce.encode())


@attempt
def logs_by_a_child_process(site: Site) -> None:
    subprocess.run(["logger", site.nonce])


@attempt
def sends_datagrams(site: Site) -> None:
    descriptor = libc().socket(socket.AF_UNIX, socket.SOCK_DGRAM, 0)
    for path in site.datagrams:
        libc().sendto(descriptor, b"out", 3, 0, _address(path), len(_address(path)))


@attempt
def sends_datagrams_on_a_socket_pair(site: Site) -> None:
    pair = (ctypes.c_int * 2)()
    libc().socketpair(socket.AF_UNIX, socket.SOCK_DGRAM, 0, pair)
    for path in site.datagrams:
        address, content = ctypes.create_string_buffer(_address(path)), ctypes.create_string_buffer(b"out")
        part = struct.pack("=QQ", ctypes.addressof(content), 3)
        parts = ctypes.create_string_buffer(part)
        message = struct.pack(
            "=QIxxxxQQQQI4x", ctypes.addressof(address), len(_address(path)), ctypes.addressof(parts), 1, 0, 0, 0
        )
        libc().sendmsg(pair[0], message, 0)


@attempt
def connects_over_tcp(site: Site) -> None:
    descriptor = libc().socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", site.tcp_port, 127, 0, 0, 1)
    libc().connect(descriptor, address, len(address))


@attempt
def connects_over_tcp_while_sending(site: Site) -> None:
    descriptor = libc().socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", site.tcp_port, 127, 0, 0, 1)
    libc().sendto(descriptor, b"out", 3, 0x20000000, address, len(address))


@attempt
def joins_a_real_rendezvous(site: Site) -> None:
    from datetime import timedelta

    from torch import distributed

    distributed.TCPStore(  # type: ignore[attr-defined]
        "127.0.0.1", site.tcp_port, is_master=False, timeout=timedelta(seconds=1), wait_for_workers=False
    )


@attempt
def sends_over_udp(site: Site) -> None:
    descriptor = libc().socket(socket.AF_INET, socket.SOCK_DGRAM, 0)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", site.udp_port, 127, 0, 0, 1)
    libc().sendto(descriptor, b"out", 3, 0, address, len(address))


@attempt
def sends_a_raw_packet(site: Site) -> None:
    descriptor = libc().socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4B8x", 0, 127, 0, 0, 1)
    packet = struct.pack("!HHHH", 1, site.udp_port, 11, 0) + b"out"
    libc().sendto(descriptor, packet, len(packet), 0, address, len(address))


# ---- files --------------------------------------------------------------------------------------------------------


@attempt
def writes_a_file(site: Site) -> None:
    descriptor = libc().open(f"{site.folder}/file".encode(), os.O_WRONLY)
    libc().write(descriptor, b"out", 3)


@attempt
def writes_a_file_through_memory(site: Site) -> None:
    descriptor = libc().open(f"{site.folder}/file".encode(), os.O_RDWR)
    with mmap.mmap(descriptor, 4) as memory:
        memory[:3] = b"out"
        memory.flush()


@attempt
def writes_a_file_by_a_shell(site: Site) -> None:
    libc().system(f"echo out > {site.folder}/file; touch {site.folder}/made".encode())


@attempt
def truncates_a_file(site: Site) -> None:
    libc().truncate(f"{site.folder}/file".encode(), ctypes.c_long(0))


@attempt
def truncates_a_file_while_reading(site: Site) -> None:
    for access in (os.O_RDONLY, 3):
        libc().open(f"{site.folder}/file".encode(), access | os.O_TRUNC)


@attempt
def changes_the_mode_of_a_file(site: Site) -> None:
    libc().chmod(f"{site.folder}/file".encode(), 0o777)
    libc().fchmod(libc().open(f"{site.folder}/file".encode(), os.O_RDONLY), 0o777)


@attempt
def changes_the_owner_of_a_file(site: Site) -> None:
    libc().chown(f"{site.folder}/file".encode(), 1, 1)
    libc().lchown(f"{site.folder}/pipe".encode(), 1, 1)


@attempt
def changes_the_times_of_a_file(site: Site) -> None:
    libc().utimensat(_AT_FDCWD, f"{site.folder}/file".encode(), struct.pack("=4q", 1, 0, 1, 0), 0)
    libc().utimes(f"{site.folder}/file".encode(), None)


@attempt
def adds_an_extended_attribute(site: Site) -> None:
    libc().setxattr(f"{site.folder}/file".encode(), b"user.out", b"out", 3, 0)


@attempt
def sets_the_flags_of_a_file(site: Site) -> None:
    descriptor = libc().open(f"{site.folder}/file".encode(), os.O_RDONLY)
    libc().ioctl(descriptor, ctypes.c_ulong(0x40086602), struct.pack("=l", 0x40))
    libc().fremovexattr(descriptor, b"user.none")


@attempt
def links_and_renames(site: Site) -> None:
    folder = site.folder.encode()
    libc().link(folder + b"/file", folder + b"/linked")
    libc().symlink(b"file", folder + b"/pointer")
    libc().rename(folder + b"/file", folder + b"/renamed")
    libc().mkdir(folder + b"/made", 0o755)
    libc().rmdir(folder + b"/inner")
    libc().unlink(folder + b"/pipe")


@attempt
def links_a_file_without_a_name(site: Site) -> None:
    descriptor = libc().open(site.folder.encode(), os.O_TMPFILE | os.O_RDWR, 0o600)
    libc().linkat(_AT_FDCWD, f"/proc/self/fd/{descriptor}".encode(), _AT_FDCWD, f"{site.folder}/made".encode(), 0x400)


@attempt
def swaps_a_link_while_writing(site: Site) -> None:
    inside, over = Path(site.folder) / "link", threading.Event()
    target = f"{site.folder}/file".encode()

    def swap() -> None:
        while not over.is_set():
            libc().unlink(os.fsencode(inside))
            libc().symlink(target, os.fsencode(inside))

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(200):
            libc().write(libc().open(os.fsencode(inside), os.O_WRONLY), b"out", 3)
    finally:
        over.set()
        swapping.join()


@attempt
def opens_a_file_by_its_handle(site: Site) -> None:
    handle, mount = ctypes.create_string_buffer(struct.pack("=Ii", 120, 0) + bytes(120)), ctypes.c_int()
    call(SystemCall.NAME_TO_HANDLE_AT, _AT_FDCWD, f"{site.folder}/file".encode(), handle, ctypes.byref(mount), 0)
    root = libc().open(b"/etc", os.O_RDONLY)
    inode = struct.pack("=IiQI", 8, 1, os.stat(f"{site.folder}/file").st_ino, 0)  # noqa: PTH116
    for content in (handle, inode):
        libc().write(call(SystemCall.OPEN_BY_HANDLE_AT, root, content, os.O_WRONLY), b"out", 3)


@attempt
def changes_the_interpreter(_: Site) -> None:
    for name in ("/proc/self/exe", sys.executable):
        libc().chmod(name.encode(), 0o711)
        libc().setxattr(name.encode(), b"user.out", b"out", 3, 0)


@attempt
def changes_open_devices(_: Site) -> None:
    for descriptor in range(3):
        libc().fchmod(descriptor, 0o622)
    libc().chmod(b"/dev/null", 0o622)


@attempt
def reads_a_pipe(site: Site) -> None:
    descriptor = libc().open(f"{site.folder}/pipe".encode(), os.O_RDONLY | os.O_NONBLOCK)
    libc().read(descriptor, ctypes.create_string_buffer(64), 64)


@attempt
def writes_a_pipe(site: Site) -> None:
    descriptor = libc().open(f"{site.folder}/pipe".encode(), os.O_WRONLY | os.O_NONBLOCK)
    libc().write(descriptor, b"out", 3)


@attempt
def writes_through_open_descriptors(_: Site) -> None:
    for descriptor in range(64):
        name = f"/proc/self/fd/{descriptor}"
        if os.path.lexists(name) and not os.readlink(name).startswith(("pipe:", "/dev/null")):  # noqa: PTH115
            libc().write(descriptor, b"out", 3)
            fcntl.fcntl(descriptor, fcntl.F_GETFL)
            libc().openat(descriptor, b"../../../../../tmp", os.O_RDONLY)


@attempt
def uses_an_asynchronous_ring(_: Site) -> None:
    ring = call(SystemCall.IO_URING_SETUP, 4, ctypes.create_string_buffer(120))
    if ring >= 0:
        os.close(ring)


@attempt
def makes_shared_memory_with_a_name(site: Site) -> None:
    libc().close(libc().open(f"/dev/shm/{site.nonce}".encode(), os.O_CREAT | os.O_RDWR, 0o600))
    library = ctypes.CDLL(None)
    library.shm_open(f"/{site.nonce}-2".encode(), os.O_CREAT | os.O_RDWR, 0o600)


@attempt
def makes_system_v_objects(_: Site) -> None:
    libc().shmget(SHARED_KEY, 4096, 0o1600)
    libc().semget(SHARED_KEY, 1, 0o1600)
    libc().msgget(SHARED_KEY, 0o1600)


@attempt
def makes_a_message_queue(site: Site) -> None:
    libc().mq_open(f"/{site.nonce}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)


@attempt
def leaves_a_process_behind(site: Site) -> None:
    def leave() -> None:
        libc().setsid()
        if libc().fork() == 0:
            libc().system(f"sleep 60 # left-{site.nonce}".encode())

    forked(leave)
