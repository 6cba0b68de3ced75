"""Which system calls a dry run may make: in namespaces of its own, and among the other processes of the machine.

Numbers of options, flags and families come from the headers of Linux that stand beside them. They are the same on
x86-64 and aarch64.
"""

from __future__ import annotations

import errno
import socket
import stat
from collections.abc import Iterable

from pharoah.dryrun.seccomp import Clause, Condition, Rule
from pharoah.dryrun.system_calls import SystemCall

_NEW_NAMESPACES = 0x7E02_0000
"""All CLONE_NEW* flags of clone(2) (linux/sched.h)."""
_CLONE_THREAD = 0x0001_0000
_PROTOCOL_ROUTE = 0
"""NETLINK_ROUTE (linux/netlink.h): `getifaddrs` lists the network's interfaces with it."""
_PROTOCOL_TCP = 6
_TYPE_OF_SOCKET = 0xF
"""The other bits of a socket's type are flags (linux/net.h)."""
_FAST_OPEN = 0x2000_0000
"""MSG_FASTOPEN (linux/socket.h): connects a TCP socket while it sends."""
_PUSH_INPUT, _PASTE_SELECTION = 0x5412, 0x541C
"""TIOCSTI and TIOCLINUX (asm-generic/ioctls.h): type into a terminal as if its user did."""
_QUESTIONS = (
    0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A,  # terminals and descriptors
    0x8910, 0x8912, 0x8913, 0x8915, 0x8921, 0x8927, 0x8933,  # interfaces of the network
    0x80086601,  # attributes of a file
)  # fmt: skip
"""Requests of ioctl(2) that change nothing outside the process: TCGETS, TIOCGPGRP, TIOCGWINSZ, FIONREAD, FIONBIO,
FIONCLEX, FIOCLEX, TCGETS2; SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR, SIOCGIFMTU, SIOCGIFHWADDR,
SIOCGIFINDEX; FS_IOC_GETFLAGS."""
_SIGNALS_OF_A_DESCRIPTOR = (8, 10, 15)
"""F_SETOWN, F_SETSIG and F_SETOWN_EX of fcntl(2): the kernel then signals the process that they name."""
_SET_LEASE = 1024
"""F_SETLEASE of fcntl(2): others wait before they can open the file."""
_SET_LOCKS = (6, 7, 37, 38)
"""F_SETLK, F_SETLKW, F_OFD_SETLK and F_OFD_SETLKW of fcntl(2) in 64-bit programs (asm-generic/fcntl.h)."""
_KIND_OF_FILE = 0o170000
"""S_IFMT: the bits of a mode that name the kind of a file (inode(7))."""
_SET_PARENT_DEATH_SIGNAL = 1
_PRIORITY_OF_PROCESS, _IO_PRIORITY_OF_PROCESS = 0, 1
"""PRIO_PROCESS (linux/resource.h) and IOPRIO_WHO_PROCESS (linux/ioprio.h)."""
_QUERY_PERSONALITY, _USUAL_PERSONALITY = 0xFFFF_FFFF, 0

_MOUNTS_AND_NAMESPACES = (
    SystemCall.CHROOT, SystemCall.PIVOT_ROOT, SystemCall.MOUNT, SystemCall.UMOUNT2, SystemCall.OPEN_TREE,
    SystemCall.MOVE_MOUNT, SystemCall.FSOPEN, SystemCall.FSCONFIG, SystemCall.FSMOUNT, SystemCall.FSPICK,
    SystemCall.MOUNT_SETATTR, SystemCall.UNSHARE, SystemCall.SETNS,
)  # fmt: skip
_PROCESSES = (
    SystemCall.PTRACE, SystemCall.PROCESS_VM_READV, SystemCall.PROCESS_VM_WRITEV, SystemCall.PROCESS_MADVISE,
    SystemCall.PROCESS_MRELEASE, SystemCall.PIDFD_GETFD, SystemCall.KCMP,
)  # fmt: skip
_FILES = (
    SystemCall.NAME_TO_HANDLE_AT, SystemCall.OPEN_BY_HANDLE_AT, SystemCall.FANOTIFY_INIT, SystemCall.LOOKUP_DCOOKIE,
    SystemCall.QUOTACTL, SystemCall.QUOTACTL_FD,
)  # fmt: skip
_KERNEL = (
    SystemCall.KEYCTL, SystemCall.ADD_KEY, SystemCall.REQUEST_KEY, SystemCall.BPF, SystemCall.PERF_EVENT_OPEN,
    SystemCall.USERFAULTFD, SystemCall.IO_URING_SETUP, SystemCall.IO_URING_ENTER, SystemCall.IO_URING_REGISTER,
    SystemCall.KEXEC_LOAD, SystemCall.KEXEC_FILE_LOAD, SystemCall.CREATE_MODULE, SystemCall.INIT_MODULE,
    SystemCall.FINIT_MODULE, SystemCall.DELETE_MODULE, SystemCall.REBOOT, SystemCall.SWAPON, SystemCall.SWAPOFF,
    SystemCall.ACCT, SystemCall.SETTIMEOFDAY, SystemCall.CLOCK_SETTIME, SystemCall.ADJTIMEX, SystemCall.CLOCK_ADJTIME,
    SystemCall.SETHOSTNAME, SystemCall.SETDOMAINNAME, SystemCall.SYSLOG, SystemCall.VHANGUP, SystemCall.IOPL,
    SystemCall.IOPERM, SystemCall.MODIFY_LDT, SystemCall.USELIB, SystemCall.NFSSERVCTL,
)  # fmt: skip
_ATTRIBUTES_OF_FILES = (
    SystemCall.CHMOD, SystemCall.FCHMOD, SystemCall.FCHMODAT, SystemCall.FCHMODAT2, SystemCall.CHOWN,
    SystemCall.LCHOWN, SystemCall.FCHOWN, SystemCall.FCHOWNAT, SystemCall.UTIME, SystemCall.UTIMES,
    SystemCall.FUTIMESAT, SystemCall.SETXATTR, SystemCall.LSETXATTR, SystemCall.FSETXATTR,
    SystemCall.REMOVEXATTR, SystemCall.LREMOVEXATTR, SystemCall.FREMOVEXATTR,
)  # fmt: skip
_SHARED_BY_NAME = (
    SystemCall.SHMGET, SystemCall.SHMAT, SystemCall.SHMCTL, SystemCall.SEMGET, SystemCall.SEMOP, SystemCall.SEMCTL,
    SystemCall.SEMTIMEDOP, SystemCall.MSGGET, SystemCall.MSGSND, SystemCall.MSGRCV, SystemCall.MSGCTL,
    SystemCall.MQ_OPEN, SystemCall.MQ_UNLINK,
)  # fmt: skip
_REACHING_OTHERS = (
    SystemCall.BIND, SystemCall.LISTEN, SystemCall.CONNECT, SystemCall.PIDFD_OPEN, SystemCall.PIDFD_SEND_SIGNAL,
    SystemCall.TKILL, SystemCall.MIGRATE_PAGES, SystemCall.MOVE_PAGES, SystemCall.FORK, SystemCall.VFORK,
)  # fmt: skip


def in_namespaces() -> list[Rule]:
    """Rules for a process in namespaces of its own. Inside them it may start processes, listen and connect.

    Refused is what could undo the isolation, and what the kernel does not divide by namespaces.
    """
    refused = (*_MOUNTS_AND_NAMESPACES, *_PROCESSES, *_FILES, *_KERNEL)
    families = [(Condition(0, family),) for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)]
    interfaces = (Condition(0, socket.AF_NETLINK), Condition(2, _PROTOCOL_ROUTE))
    return [
        *map(Rule, refused),
        *_common(),
        Rule(SystemCall.CLONE, (_none_of(0, _NEW_NAMESPACES),)),
        Rule(SystemCall.SOCKET, (*families, interfaces), errno.EAFNOSUPPORT),
        Rule(SystemCall.IOCTL, (_not(1, _PUSH_INPUT, _PASTE_SELECTION),)),
    ]


def attributes_of_files() -> list[Rule]:
    """Rules for a process whose program file was opened outside: through /proc/self/exe it still reaches that file.

    The times of a file may be set to now, as touch(1) does it.
    """
    return [*map(Rule, _ATTRIBUTES_OF_FILES), Rule(SystemCall.UTIMENSAT, (_null(2),))]


def among_other_processes(own_pid: int) -> list[Rule]:
    """Rules for a process without namespaces. It may read and compute, and signal and tune itself only.

    Landlock holds what depends on the path of a file.
    """
    refused = (*_MOUNTS_AND_NAMESPACES, *_PROCESSES, *_FILES, *_KERNEL, *_SHARED_BY_NAME, *_REACHING_OTHERS)
    return [
        *map(Rule, (*refused, *_ATTRIBUTES_OF_FILES, SystemCall.UTIMENSAT)),
        *_common(),
        *_only_itself(own_pid),
        *_no_messages(),
        Rule(SystemCall.CLONE, ((*_none_of(0, _NEW_NAMESPACES), Condition(0, _CLONE_THREAD, _CLONE_THREAD)),)),
        Rule(SystemCall.TRUNCATE),
        Rule(SystemCall.OPENAT2, error=errno.ENOSYS),  # its flags are in memory; the C library does not need it
        *_opening_truncates_only_for_writing(),
        Rule(SystemCall.IOCTL, tuple((Condition(1, request),) for request in _QUESTIONS), errno.ENOTTY),
        *_locks_that_nobody_holds(),
        Rule(SystemCall.PRCTL, (_not(0, _SET_PARENT_DEATH_SIGNAL),)),
    ]


def _common() -> Iterable[Rule]:
    """Rules of both kinds of sandbox."""
    yield Rule(SystemCall.CLONE3, error=errno.ENOSYS)  # its flags are in memory; the C library then calls clone
    yield Rule(SystemCall.PERSONALITY, ((Condition(0, _QUERY_PERSONALITY),), (Condition(0, _USUAL_PERSONALITY),)))
    for call, argument in ((SystemCall.MKNOD, 1), (SystemCall.MKNODAT, 2)):
        kinds = (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)  # but no devices
        yield Rule(call, tuple((Condition(argument, kind, _KIND_OF_FILE),) for kind in kinds))


def _only_itself(own_pid: int) -> Iterable[Rule]:
    """Calls that name a process by its number; zero names the caller, but to kill(2) the whole process group."""
    for call in (SystemCall.KILL, SystemCall.TGKILL, SystemCall.RT_SIGQUEUEINFO, SystemCall.RT_TGSIGQUEUEINFO):
        yield Rule(call, ((Condition(0, own_pid),),))
    scheduling = (
        SystemCall.SCHED_SETPARAM,
        SystemCall.SCHED_SETSCHEDULER,
        SystemCall.SCHED_SETATTR,
        SystemCall.SCHED_SETAFFINITY,
    )
    itself = (0, own_pid)
    for call in scheduling:
        yield Rule(call, tuple((Condition(0, pid),) for pid in itself))
    for call, kind in (
        (SystemCall.SETPRIORITY, _PRIORITY_OF_PROCESS),
        (SystemCall.IOPRIO_SET, _IO_PRIORITY_OF_PROCESS),
    ):
        yield Rule(call, tuple((Condition(0, kind), Condition(1, pid)) for pid in itself))
    yield Rule(SystemCall.PRLIMIT64, (*((Condition(0, pid),) for pid in itself), _null(2)))


def _no_messages() -> Iterable[Rule]:
    """Sockets that cannot reach anybody: what a message is addressed to is in memory, so such sockets are not made."""
    streams = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    local = [(Condition(0, socket.AF_UNIX), Condition(1, kind, _TYPE_OF_SOCKET)) for kind in streams]
    tcp = [
        (Condition(0, family), Condition(1, socket.SOCK_STREAM, _TYPE_OF_SOCKET), Condition(2, protocol))
        for family in (socket.AF_INET, socket.AF_INET6)
        for protocol in (0, _PROTOCOL_TCP)
    ]
    yield Rule(SystemCall.SOCKET, (*local, *tcp))
    yield Rule(SystemCall.SOCKETPAIR, tuple(local))
    yield Rule(SystemCall.SENDTO, ((*_null(4), *_none_of(3, _FAST_OPEN)),))
    yield Rule(SystemCall.SENDMSG, (_none_of(2, _FAST_OPEN),))
    yield Rule(SystemCall.SENDMMSG, (_none_of(3, _FAST_OPEN),))


def _locks_that_nobody_holds() -> Iterable[Rule]:
    """A lock on a file of the machine, also one for reading, would keep its real writer waiting or make it fail. Nobody
    else is in the dry run, so each lock is answered as if it were held."""
    locks = tuple((Condition(1, command),) for command in _SET_LOCKS)
    yield Rule(SystemCall.FCNTL, (_not(1, *_SIGNALS_OF_A_DESCRIPTOR, _SET_LEASE),), answered_when=locks)
    yield Rule(SystemCall.FLOCK, error=0)


def _opening_truncates_only_for_writing() -> Iterable[Rule]:
    """A file can be emptied by opening it without O_WRONLY and O_RDWR; Landlock before Linux 6.2 does not see that."""
    access, write_only, read_and_write, truncate = 0o3, 0o1, 0o2, 0o1000
    for call, argument in ((SystemCall.OPEN, 1), (SystemCall.OPENAT, 2)):
        writing = tuple((Condition(argument, mode, access),) for mode in (write_only, read_and_write))
        yield Rule(call, (_none_of(argument, truncate), *writing))


def _none_of(argument: int, bits: int) -> Clause:
    return (Condition(argument, 0, bits),)


def _not(argument: int, *values: int) -> Clause:
    return tuple(Condition(argument, value, equal=False) for value in values)


def _null(argument: int) -> Clause:
    return (Condition(argument, 0), Condition(argument, 0, high=True))
