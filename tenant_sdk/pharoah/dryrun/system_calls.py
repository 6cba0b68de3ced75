"""Numbers of the system calls that the filters of a dry run name, for the two architectures that torch runs on.

The numbers come from arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux; they never
change. None stands for a call that an architecture does not have.
"""

from __future__ import annotations

import os
import sys
from enum import Enum

FIRST_UNKNOWN = 463
"""Calls with this number and higher came after Linux 6.10, whose last call is 462 (mseal). Programs must do without
them anyway; among them are new ways to mount, and to change attributes of files. Calls of the x32 ABI are higher, too.
"""


class Architecture(Enum):
    """A machine as uname(2) names it, and as audit(7) numbers it (linux/audit.h)."""

    X86_64 = ("x86_64", 0xC000003E)
    AARCH64 = ("aarch64", 0xC00000B7)

    @property
    def audit_number(self) -> int:
        """What the kernel shows to a filter. It differs for calls of another ABI, such as those of 32-bit programs."""
        return self.value[1]

    @classmethod
    def from_this_process(cls) -> Architecture:
        """Raises OSError on every other machine."""
        machine = os.uname().machine
        for architecture in cls:
            if machine == architecture.value[0] and sys.maxsize > 1 << 32:
                return architecture
        raise OSError(0, f"no system calls are known for {machine}")


class SystemCall(Enum):
    """Number on x86-64, number on aarch64."""

    # files and what belongs to them
    OPEN = (2, None)
    OPENAT = (257, 56)
    OPENAT2 = (437, 437)
    TRUNCATE = (76, 45)
    CHMOD = (90, None)
    FCHMOD = (91, 52)
    FCHMODAT = (268, 53)
    FCHMODAT2 = (452, 452)
    CHOWN = (92, None)
    LCHOWN = (94, None)
    FCHOWN = (93, 55)
    FCHOWNAT = (260, 54)
    UTIME = (132, None)
    UTIMES = (235, None)
    FUTIMESAT = (261, None)
    UTIMENSAT = (280, 88)
    SETXATTR = (188, 5)
    LSETXATTR = (189, 6)
    FSETXATTR = (190, 7)
    REMOVEXATTR = (197, 14)
    LREMOVEXATTR = (198, 15)
    FREMOVEXATTR = (199, 16)
    FLOCK = (73, 32)
    FCNTL = (72, 25)
    IOCTL = (16, 29)
    MKNOD = (133, None)
    MKNODAT = (259, 33)
    NAME_TO_HANDLE_AT = (303, 264)
    OPEN_BY_HANDLE_AT = (304, 265)
    FANOTIFY_INIT = (300, 262)
    LOOKUP_DCOOKIE = (212, 18)
    QUOTACTL = (179, 60)
    QUOTACTL_FD = (443, 443)
    # mounts and namespaces
    CHROOT = (161, 51)
    PIVOT_ROOT = (155, 41)
    MOUNT = (165, 40)
    UMOUNT2 = (166, 39)
    OPEN_TREE = (428, 428)
    MOVE_MOUNT = (429, 429)
    FSOPEN = (430, 430)
    FSCONFIG = (431, 431)
    FSMOUNT = (432, 432)
    FSPICK = (433, 433)
    MOUNT_SETATTR = (442, 442)
    UNSHARE = (272, 97)
    SETNS = (308, 268)
    # processes
    CLONE = (56, 220)
    CLONE3 = (435, 435)
    FORK = (57, None)
    VFORK = (58, None)
    PRCTL = (157, 167)
    PERSONALITY = (135, 92)
    PTRACE = (101, 117)
    PROCESS_VM_READV = (310, 270)
    PROCESS_VM_WRITEV = (311, 271)
    PROCESS_MADVISE = (440, 440)
    PROCESS_MRELEASE = (448, 448)
    PIDFD_OPEN = (434, 434)
    PIDFD_GETFD = (438, 438)
    PIDFD_SEND_SIGNAL = (424, 424)
    KCMP = (312, 272)
    KILL = (62, 129)
    TKILL = (200, 130)
    TGKILL = (234, 131)
    RT_SIGQUEUEINFO = (129, 138)
    RT_TGSIGQUEUEINFO = (297, 240)
    SETPRIORITY = (141, 140)
    IOPRIO_SET = (251, 30)
    SCHED_SETPARAM = (142, 118)
    SCHED_SETSCHEDULER = (144, 119)
    SCHED_SETATTR = (314, 274)
    SCHED_SETAFFINITY = (203, 122)
    PRLIMIT64 = (302, 261)
    MIGRATE_PAGES = (256, 238)
    MOVE_PAGES = (279, 239)
    # sockets
    SOCKET = (41, 198)
    SOCKETPAIR = (53, 199)
    BIND = (49, 200)
    LISTEN = (50, 201)
    CONNECT = (42, 203)
    SENDTO = (44, 206)
    SENDMSG = (46, 211)
    SENDMMSG = (307, 269)
    # memory, semaphores and messages that processes share by name
    SHMGET = (29, 194)
    SHMAT = (30, 196)
    SHMCTL = (31, 195)
    SEMGET = (64, 190)
    SEMOP = (65, 193)
    SEMCTL = (66, 191)
    SEMTIMEDOP = (220, 192)
    MSGGET = (68, 186)
    MSGSND = (69, 189)
    MSGRCV = (70, 188)
    MSGCTL = (71, 187)
    MQ_OPEN = (240, 180)
    MQ_UNLINK = (241, 181)
    # the kernel itself
    KEYCTL = (250, 219)
    ADD_KEY = (248, 217)
    REQUEST_KEY = (249, 218)
    BPF = (321, 280)
    PERF_EVENT_OPEN = (298, 241)
    USERFAULTFD = (323, 282)
    IO_URING_SETUP = (425, 425)
    IO_URING_ENTER = (426, 426)
    IO_URING_REGISTER = (427, 427)
    KEXEC_LOAD = (246, 104)
    KEXEC_FILE_LOAD = (320, 294)
    CREATE_MODULE = (174, None)
    INIT_MODULE = (175, 105)
    FINIT_MODULE = (313, 273)
    DELETE_MODULE = (176, 106)
    REBOOT = (169, 142)
    SWAPON = (167, 224)
    SWAPOFF = (168, 225)
    ACCT = (163, 89)
    SETTIMEOFDAY = (164, 170)
    CLOCK_SETTIME = (227, 112)
    ADJTIMEX = (159, 171)
    CLOCK_ADJTIME = (305, 266)
    SETHOSTNAME = (170, 161)
    SETDOMAINNAME = (171, 162)
    SYSLOG = (103, 116)
    VHANGUP = (153, 58)
    IOPL = (172, None)
    IOPERM = (173, None)
    MODIFY_LDT = (154, None)
    USELIB = (134, None)
    NFSSERVCTL = (180, 42)
    SECCOMP = (317, 277)

    def number(self, architecture: Architecture) -> int | None:
        """The call's number, or None where there is no such call."""
        numbers: tuple[int | None, int | None] = self.value
        on_x86_64, on_aarch64 = numbers
        return on_x86_64 if architecture is Architecture.X86_64 else on_aarch64

    def number_here(self) -> int:
        """The call's number on this machine. Raises OSError where there is no such call."""
        number = self.number(Architecture.from_this_process())
        if number is None:
            raise OSError(0, f"this machine has no system call {self.name.lower()}")
        return number
