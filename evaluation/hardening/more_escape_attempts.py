"""More attempts to get out of a dry run: processes, terminals, devices, mounts and the kernel."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import stat
import struct
import subprocess
import sys
from pathlib import Path

from evaluation.hardening.escape_attempts import SIGNAL, attempt, call, forked, libc
from evaluation.hardening.escape_site import SHARED_KEY, Site
from pharoah.dryrun.system_calls import SystemCall

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_BIND, _MS_REMOUNT = 4096, 32

# ---- other processes ----------------------------------------------------------------------------------------------


@attempt
def signals_a_process(site: Site) -> None:
    libc().kill(site.victim_pid, SIGNAL)
    call(SystemCall.TKILL, site.victim_pid, SIGNAL)
    call(SystemCall.TGKILL, site.victim_pid, site.victim_pid, SIGNAL)
    call(SystemCall.RT_SIGQUEUEINFO, site.victim_pid, SIGNAL, struct.pack("=iii", SIGNAL, 0, -1) + bytes(116))


@attempt
def signals_through_a_descriptor_of_a_process(site: Site) -> None:
    descriptor = call(SystemCall.PIDFD_OPEN, site.victim_pid, 0)
    call(SystemCall.PIDFD_SEND_SIGNAL, descriptor, SIGNAL, None, 0)


@attempt
def lets_the_kernel_signal_a_process(site: Site) -> None:
    pair = socket.socketpair()
    descriptor = pair[0].fileno()
    for command, value in ((10, int(SIGNAL)), (8, site.victim_pid)):  # F_SETSIG, F_SETOWN
        libc().fcntl(descriptor, command, value)
    libc().fcntl(descriptor, 4, os.O_ASYNC | os.O_NONBLOCK)  # F_SETFL
    pair[1].send(b"out")


@attempt
def signals_all_processes(site: Site) -> None:
    if site.victim_pid > 2:
        libc().kill(-1, 0)  # zero only asks whether they could be signalled
        libc().kill(-os.getpgid(site.victim_pid), SIGNAL) if _sees(site.victim_pid) else None


def _sees(pid: int) -> bool:
    try:
        return os.getpgid(pid) not in (0, os.getpgid(0))
    except OSError:
        return False


@attempt
def writes_the_memory_of_a_process(site: Site) -> None:
    content = ctypes.create_string_buffer(b"out")
    mine = struct.pack("=QQ", ctypes.addressof(content), 3)
    theirs = struct.pack("=QQ", site.victim_buffer, 3)
    call(SystemCall.PROCESS_VM_WRITEV, site.victim_pid, mine, 1, theirs, 1, 0)


@attempt
def opens_the_memory_of_a_process(site: Site) -> None:
    descriptor = libc().open(f"/proc/{site.victim_pid}/mem".encode(), os.O_RDWR)
    libc().pwrite(descriptor, b"out", ctypes.c_size_t(3), ctypes.c_long(site.victim_buffer))


@attempt
def traces_a_process(site: Site) -> None:
    call(SystemCall.PTRACE, 0x4206, site.victim_pid, 0, 0)  # PTRACE_SEIZE
    call(SystemCall.PTRACE, 5, site.victim_pid, site.victim_buffer, 0x74756F)  # PTRACE_POKEDATA


@attempt
def slows_a_process(site: Site) -> None:
    libc().setpriority(0, site.victim_pid, 10)
    libc().setpriority(2, os.getuid(), 10)  # all processes of the user
    call(SystemCall.IOPRIO_SET, 1, site.victim_pid, 3 << 13)
    call(SystemCall.SCHED_SETSCHEDULER, site.victim_pid, 3, struct.pack("=i", 0))  # SCHED_BATCH


@attempt
def moves_a_process_to_one_core(site: Site) -> None:
    call(SystemCall.SCHED_SETAFFINITY, site.victim_pid, 8, struct.pack("=Q", 1))


@attempt
def limits_a_process(site: Site) -> None:
    call(SystemCall.PRLIMIT64, site.victim_pid, resource.RLIMIT_NOFILE, struct.pack("=QQ", 77, 77), 0)


@attempt
def offers_a_process_to_the_memory_killer(site: Site) -> None:
    descriptor = libc().open(f"/proc/{site.victim_pid}/oom_score_adj".encode(), os.O_WRONLY)
    libc().write(descriptor, b"777", 3)


@attempt
def takes_a_file_from_a_process(site: Site) -> None:
    descriptor = call(SystemCall.PIDFD_OPEN, site.victim_pid, 0)
    libc().write(call(SystemCall.PIDFD_GETFD, descriptor, 1, 0), b"out", 3)
    libc().write(libc().open(f"/proc/{site.victim_pid}/fd/1".encode(), os.O_WRONLY), b"out", 3)


@attempt
def goes_through_the_root_of_a_process(site: Site) -> None:
    for pid in (1, 2, os.getppid(), site.victim_pid):
        for name in ("root", "cwd"):
            descriptor = libc().open(f"/proc/{pid}/{name}{site.folder}/made".encode(), os.O_CREAT | os.O_WRONLY, 0o600)
            libc().write(descriptor, b"out", 3)
        libc().chmod(f"/proc/{pid}/exe".encode(), 0o711) if site.victim_pid != pid else None


@attempt
def leaves_many_processes_behind(site: Site) -> None:
    def leave() -> None:
        libc().setsid()
        if libc().fork() == 0:
            libc().system(f"sleep 60 # left-{site.nonce}".encode())

    for _ in range(4):
        forked(leave)


@attempt
def leaves_a_daemon_behind(site: Site) -> None:
    subprocess.Popen(["sh", "-c", f"sleep 60 # left-{site.nonce}"], start_new_session=True)


# ---- terminals and devices ----------------------------------------------------------------------------------------


@attempt
def writes_to_a_terminal(site: Site) -> None:
    libc().write(libc().open(site.terminal.encode(), os.O_WRONLY | os.O_NOCTTY), b"out", 3)


@attempt
def types_into_a_terminal(site: Site) -> None:
    for name in (site.terminal, "/dev/tty"):
        descriptor = libc().open(name.encode(), os.O_RDWR)
        for letter in b"out\n":
            libc().ioctl(descriptor, ctypes.c_ulong(0x5412), bytes([letter]))


@attempt
def opens_device_files_by_a_child_process(site: Site) -> None:
    for node in (f"{site.folder}/node", "/dev/disk-of-this-machine"):
        libc().system(f"echo out | dd of={node} conv=notrunc 2>/dev/null".encode())


@attempt
def opens_device_files(site: Site) -> None:
    for node in (f"{site.folder}/node", "/dev/disk-of-this-machine"):
        libc().write(libc().open(node.encode(), os.O_WRONLY | os.O_NOCTTY), b"out", 3)


@attempt
def makes_a_device_file(site: Site) -> None:
    for folder in ("/tmp", "/dev", "/dev/shm", os.getcwd()):  # noqa: PTH109
        node = f"{folder}/{site.nonce}".encode()
        call(SystemCall.MKNODAT, -100, node, stat.S_IFCHR | 0o600, site.terminal_device)
        libc().write(libc().open(node, os.O_WRONLY | os.O_NOCTTY), b"out", 3)


# ---- mounts and namespaces ----------------------------------------------------------------------------------------


@attempt
def changes_the_root_twice(site: Site) -> None:
    inner = Path("escape-root")
    libc().mkdir(bytes(inner), 0o755)
    if libc().chroot(bytes(inner)) == 0:
        for _ in range(64):
            libc().chdir(b"..")
        libc().chroot(b".")
    libc().close(libc().open(f"{site.folder}/made".encode(), os.O_CREAT | os.O_WRONLY, 0o600))


@attempt
def mounts_over_a_folder(site: Site) -> None:
    libc().mount(b"tmpfs", f"{site.folder}/inner".encode(), b"tmpfs", 0, None)
    libc().mount(b"none", b"/proc", b"", _MS_BIND | _MS_REMOUNT, None)
    libc().umount2(f"{site.folder}/holder/beneath".encode(), 2)


@attempt
def mounts_by_the_newer_calls(site: Site) -> None:
    context = call(SystemCall.FSOPEN, b"tmpfs", 0)
    call(SystemCall.FSCONFIG, context, 6, 0, 0, 0)
    mounted = call(SystemCall.FSMOUNT, context, 0, 0)
    call(SystemCall.MOVE_MOUNT, mounted, b"", -100, f"{site.folder}/inner".encode(), 4)
    tree = call(SystemCall.OPEN_TREE, -100, b"/", 1)
    libc().openat(tree, f"{site.folder}/made".lstrip("/").encode(), os.O_CREAT | os.O_WRONLY, 0o600)


@attempt
def uncovers_what_is_mounted_over(site: Site) -> None:
    for point in (b"/", b"/dev", b"/proc", b"/tmp", os.fsencode(site.folder)):
        libc().umount2(point, 2)
    libc().close(libc().open(f"{site.folder}/made".encode(), os.O_CREAT | os.O_WRONLY, 0o600))
    libc().write(libc().open(f"{site.folder}/node".encode(), os.O_WRONLY), b"out", 3)


@attempt
def gets_capabilities_in_a_new_namespace(site: Site) -> None:
    if libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNS) == 0:
        libc().chroot(b"/proc/1/root")
        libc().write(libc().open(f"{site.folder}/file".encode(), os.O_WRONLY), b"out", 3)


@attempt
def joins_the_namespaces_of_a_process(site: Site) -> None:
    for pid in (1, os.getppid(), site.victim_pid):
        for kind in ("user", "mnt", "net", "uts", "pid"):
            call(SystemCall.SETNS, libc().open(f"/proc/{pid}/ns/{kind}".encode(), os.O_RDONLY), 0)
    libc().write(libc().open(f"{site.folder}/file".encode(), os.O_WRONLY), b"out", 3)


@attempt
def sets_the_host_name(site: Site) -> None:
    libc().sethostname(site.nonce.encode(), len(site.nonce))


@attempt
def runs_a_program_with_privileges(site: Site) -> None:
    for program in ("su", "mount", "umount", "sudo", "newgrp"):
        if path := shutil.which(program):
            arguments = {"su": ["-c", f"touch {site.folder}/made"], "sudo": ["-n", "touch", f"{site.folder}/made"]}
            subprocess.run(
                [path, *arguments.get(program, [f"{site.folder}/inner"])], stdin=subprocess.DEVNULL, timeout=5
            )


@attempt
def runs_a_program_from_memory(site: Site) -> None:
    descriptor = os.memfd_create("program")
    libc().write(descriptor, (script := f"#!/bin/sh\necho out > {site.folder}/file\n".encode()), len(script))
    libc().system(f"/proc/{os.getpid()}/fd/{descriptor}".encode())


# ---- the kernel ---------------------------------------------------------------------------------------------------


@attempt
def adds_a_key(site: Site) -> None:
    for keyring in (-3, -4, -5):  # of the session, of the user, of the user's session
        call(SystemCall.ADD_KEY, b"user", site.nonce.encode(), b"out", 3, keyring)
    call(SystemCall.KEYCTL, 1, f"session-{site.nonce}".encode(), 0, 0, 0)


@attempt
def turns_the_core_pattern(site: Site) -> None:
    for name in ("kernel/core_pattern", "kernel/hostname", "vm/overcommit_memory"):
        descriptor = libc().open(f"/proc/sys/{name}".encode(), os.O_RDWR)
        content = ctypes.create_string_buffer(256)
        length = libc().read(descriptor, content, 256)
        libc().write(descriptor, site.nonce.encode() if name.endswith("hostname") else content, length)


@attempt
def writes_to_control_groups(site: Site) -> None:
    for folder in Path("/sys/fs/cgroup").glob("*"):
        libc().mkdir(bytes(folder / site.nonce), 0o755)
    libc().mkdir(f"/sys/fs/cgroup/{site.nonce}".encode(), 0o755)


@attempt
def loads_a_program_into_the_kernel(site: Site) -> None:
    call(SystemCall.BPF, 0, struct.pack("=5I", 1, 4, 4, 1, 0) + bytes(100), 120)
    call(SystemCall.PERF_EVENT_OPEN, struct.pack("=IIQ", 1, 112, 0) + bytes(96), site.victim_pid, -1, -1, 0)


@attempt
def uses_calls_of_another_abi(site: Site) -> None:
    if os.uname().machine == "x86_64":
        name = ctypes.create_string_buffer(f"{site.folder}/inner".encode())
        libc().syscall(ctypes.c_long(0x40000000 + 165), b"tmpfs", name, b"tmpfs", ctypes.c_long(0), None)
        libc().syscall(ctypes.c_long(0x40000000 + 62), ctypes.c_long(site.victim_pid), ctypes.c_long(SIGNAL))


@attempt
def reaches_the_host_of_a_virtual_machine(site: Site) -> None:
    descriptor = libc().socket(40, socket.SOCK_STREAM, 0)  # AF_VSOCK
    assert descriptor < 0, "a socket of this family leaves every network namespace"
    del site


@attempt
def sends_to_the_kernel(site: Site) -> None:
    for protocol in (9, 15):  # audit, events of devices
        descriptor = libc().socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        text = f"left-{site.nonce}".encode()
        libc().send(descriptor, struct.pack("=IHHII", 16 + len(text), 1005, 5, 1, 0) + text, 16 + len(text), 0)


@attempt
def attaches_to_shared_memory_of_others(_: Site) -> None:
    for number in range(8):
        libc().shmctl(number, 0, None)
    libc().shmget(SHARED_KEY, 4096, 0o1600)


@attempt
def runs_a_hook_of_a_version_control_system(site: Site) -> None:
    hooks = Path("hooks")
    hooks.mkdir(exist_ok=True)
    (hooks / "post-commit").write_text(f"#!/bin/sh\necho out > {site.folder}/file\n")
    (hooks / "post-commit").chmod(0o755)
    commands = (["init", "-q", "."], ["-c", "core.hooksPath=hooks", "-c", "user.name=a", "-c", "user.email=b"])
    subprocess.run(["git", *commands[0]])
    subprocess.run(["git", *commands[1], "commit", "-qm", "out", "--allow-empty"])


@attempt
def asks_a_service_to_act(site: Site) -> None:
    for command in (
        ["systemd-run", "--user", "touch", f"{site.folder}/made"],
        ["at", "now"],
        [sys.executable, "-c", f"import os; os.mkdir({site.folder + '/made'!r})"],
    ):
        if shutil.which(command[0]):
            subprocess.run(command, input=f"touch {site.folder}/made".encode(), timeout=5)
