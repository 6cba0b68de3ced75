"""The walls of a dry run: what gets out of each kind of sandbox, and what scripts may still do inside."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from evaluation.hardening.sandbox import MIN_ATTEMPTS, attempts_in
from pharoah._errors import UnknownReason
from pharoah._settings import VARIABLES
from pharoah.dryrun import dry_run, parent
from pharoah.dryrun.refused_calls import among_other_processes, attributes_of_files, in_namespaces
from pharoah.dryrun.sandbox_mode import SANDBOX_MODE, UNPROTECTED, SandboxMode
from pharoah.dryrun.seccomp import Rule, assemble
from pharoah.dryrun.system_calls import FIRST_UNKNOWN, Architecture, SystemCall

ENTER = """
import os, sys
from pharoah.dryrun import isolation, landlock
from pharoah.dryrun.sandbox import enter_sandbox
if "unavailable" in sys.argv:
    def refuse(*arguments, **named):
        raise OSError(1, "not on this machine")
    isolation.isolate = landlock.forbid_writes = refuse
print(enter_sandbox(keeps_program="replaced" not in sys.argv).mode, flush=True)
"""
JOB = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    def forward(self, x):
        return self.layers(x)
model = torch.compile(Model())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
"""


def entered(mode: str, code: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a sandbox, in a process of its own."""
    environment = {**os.environ, SANDBOX_MODE: "" if mode == SandboxMode.ROOT else mode, **variables}
    command = [sys.executable, "-c", ENTER + code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@cache
def is_available(mode: SandboxMode) -> bool:
    return entered(mode, "").stdout.strip() == mode


def need(mode: SandboxMode) -> None:
    if not is_available(mode):
        pytest.skip(f"this machine does not offer the mode {mode}")


MODES = [SandboxMode.ROOT, SandboxMode.USER, SandboxMode.RULES]


@pytest.mark.parametrize("mode", MODES)
def test_no_attempt_gets_out_of_a_dry_run(mode: SandboxMode) -> None:
    need(mode)
    found = attempts_in(mode, group_size=20)
    assert found.escaped == {}
    assert found.failed == {}, "these were not tried to the end"
    assert found.attempts >= MIN_ATTEMPTS


def test_the_attempts_are_seen_where_there_is_no_sandbox() -> None:
    """Otherwise the test above would hold for any sandbox."""
    found = attempts_in("alone", group_size=100)
    (changed,) = found.escaped.values()
    assert {"files", "terminal", "sockets", "process", "shared memory", "processes"} <= set(changed)


@pytest.mark.parametrize("mode", [SandboxMode.ROOT, SandboxMode.RULES])
def test_a_real_job_is_dry_run_in_an_interpreter_of_its_own(
    mode: SandboxMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(mode)
    monkeypatch.setenv(SANDBOX_MODE, "" if mode is SandboxMode.ROOT else mode)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    script = tmp_path / "train.py"
    script.write_text(JOB)
    fingerprint = dry_run([sys.executable, str(script)], 100.0).fingerprint
    assert fingerprint.grammar.startswith("fwd: gemm act gemm")
    assert fingerprint.features["compiled"] == "yes"
    assert list(tmp_path.iterdir()) == [script]


def test_where_nothing_holds_the_user_must_allow_a_dry_run() -> None:
    refused = entered(SandboxMode.ROOT, "", "unavailable")
    assert refused.stdout == ""
    assert re.search(rf"UnknownReason: .*not on this machine.*{UNPROTECTED}=1", refused.stderr)
    allowed = entered(SandboxMode.ROOT, "", "unavailable", **{UNPROTECTED: "1"})
    assert allowed.stdout.strip() == SandboxMode.UNPROTECTED
    assert VARIABLES["allow_unprotected_dry_run"] == UNPROTECTED


def test_the_users_word_reaches_the_dry_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without system calls stands for a machine that offers nothing: its child cannot enter any sandbox."""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "import sys\n"
        "if 'pharoah.dryrun.enter' in str(sys.orig_argv):\n"
        "    from pharoah.dryrun import system_calls\n"
        "    def unknown(): raise OSError(0, 'no system calls are known for toaster')\n"
        "    system_calls.Architecture.from_this_process = unknown\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(parent, "with_late_path", dict)  # the module of this test must come first
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('started')")
    with pytest.raises(UnknownReason, match=f"allows no sandbox.*toaster.*{UNPROTECTED}=1"):
        dry_run([sys.executable, str(script)], 60.0)
    with pytest.raises(UnknownReason, match="exited with started"):
        dry_run([sys.executable, str(script)], 60.0, allow_unprotected=True)


ORDINARY = """
import mmap, multiprocessing, os, pty, shutil, socket, subprocess, sys, tempfile, threading
from multiprocessing import shared_memory
with tempfile.TemporaryDirectory() as folder:
    open(f"{folder}/a", "w").write("text")
    shutil.copy2(f"{folder}/a", f"{folder}/b")
    with mmap.mmap(-1, 4096) as memory:
        memory[:2] = b"ok"
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
left, right = socket.socketpair()
socket.send_fds(left, [b"fd"], [client.fileno()])
assert len(socket.recv_fds(right, 8, 1)[1]) == 1
memory = shared_memory.SharedMemory(create=True, size=4096)
memory.close(); memory.unlink()
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
with multiprocessing.Manager() as manager:
    assert manager.list([1])[0] == 1
assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
subprocess.run(["git", "init", "-q", tempfile.mkdtemp()], check=True)
thread = threading.Thread(target=int)
thread.start(); thread.join()
os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)
master, slave = pty.openpty()
assert os.cpu_count() and open("/proc/self/cgroup").read() and os.listdir("/sys/devices/system/cpu")
assert socket.if_nameindex()
print("all of it", flush=True)
"""


@pytest.mark.parametrize("mode", [SandboxMode.ROOT, SandboxMode.USER])
def test_scripts_do_inside_what_scripts_do(mode: SandboxMode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(mode)
    monkeypatch.chdir(tmp_path)
    done = entered(mode, ORDINARY, "replaced")
    assert done.stdout.endswith("all of it\n"), done.stderr


def test_root_may_write_inside_into_folders_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need(SandboxMode.ROOT)
    (theirs := tmp_path / "theirs").mkdir(mode=0o755)
    os.chown(theirs, 1234, 1234)
    monkeypatch.chdir(theirs)
    done = entered(SandboxMode.ROOT, "open('made', 'w').write('x'); print(open('made').read())")
    assert done.stdout.split()[-1] == "x", done.stderr
    assert list(theirs.iterdir()) == []


# ---- the filter for system calls ----------------------------------------------------------------------------------

REFUSED, ALLOWED = 0x0005_0000, 0x7FFF_0000


def decision(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """What the kernel's interpreter returns for a call, by the rules of bpf(4)."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, architecture, 0, *(value & (1 << 64) - 1 for value in padded))
    at = word = 0
    while True:
        code, when_true, when_false, value = struct.unpack_from("=HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (word,) = struct.unpack_from("=I", data, value)
            case 0x54:
                word &= value
            case 0x15:
                at += when_true if word == value else when_false
            case 0x35:
                at += when_true if word >= value else when_false
            case 0x06:
                return value
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.mark.parametrize("architecture", Architecture)
@pytest.mark.parametrize("rules", [in_namespaces(), among_other_processes(77), attributes_of_files()])
def test_a_filter_refuses_its_calls_and_no_others(architecture: Architecture, rules: list[Rule]) -> None:
    program, audit = assemble(rules, architecture), architecture.audit_number
    named = {rule.call.number(architecture) for rule in rules}
    for rule in rules:
        if (number := rule.call.number(architecture)) is not None and not rule.allowed_when:
            assert decision(program, audit, number) == REFUSED | rule.error, rule.call
    for number in set(range(FIRST_UNKNOWN)) - named:
        assert decision(program, audit, number) == ALLOWED, number
    for number in (FIRST_UNKNOWN, 0x4000_0000 + 1, -1):
        assert decision(program, audit, number) == REFUSED | errno.ENOSYS
    assert decision(program, 0x4000_0003, 1) == REFUSED | errno.ENOSYS, "a call of a 32-bit program"


@pytest.mark.parametrize(
    ("call", "arguments", "allowed"),
    [
        (SystemCall.KILL, (77, 9), True),
        (SystemCall.KILL, (0, 9), False),
        (SystemCall.KILL, (-1, 9), False),
        (SystemCall.KILL, (78, 9), False),
        (SystemCall.CLONE, (0x3D0F00,), True),  # a thread, as the C library starts one
        (SystemCall.CLONE, (17,), False),  # fork
        (SystemCall.CLONE, (0x1000_0000 | 0x3D0F00,), False),
        (SystemCall.SOCKET, (2, 1 | 0o2000000, 0), True),
        (SystemCall.SOCKET, (2, 2, 0), False),
        (SystemCall.SOCKET, (1, 2, 0), False),
        (SystemCall.SOCKET, (2, 1, 262), False),  # multipath TCP
        (SystemCall.SOCKET, (40, 1, 0), False),
        (SystemCall.SENDTO, (3, 0, 0, 0, 0, 0), True),
        (SystemCall.SENDTO, (3, 0, 0, 0, 1 << 40, 16), False),
        (SystemCall.SENDMSG, (3, 1, 0x2000_0000), False),
        (SystemCall.PRLIMIT64, (78, 7, 0, 1), True),
        (SystemCall.PRLIMIT64, (78, 7, 1 << 33, 0), False),
        (SystemCall.SETPRIORITY, (0, 0, 1), True),
        (SystemCall.SETPRIORITY, (2, 0, 1), False),
        (SystemCall.OPENAT, (-100, 1, 0), True),
        (SystemCall.OPENAT, (-100, 1, 0o1001), True),
        (SystemCall.OPENAT, (-100, 1, 0o1000), False),
        (SystemCall.OPENAT, (-100, 1, 0o1003), False),
        (SystemCall.FCNTL, (3, 5, 1), True),  # F_GETLK only asks
        (SystemCall.FCNTL, (3, 8, 78), False),
        (SystemCall.FCNTL, (3, 4, 0), True),
        (SystemCall.IOCTL, (3, 0x5412), False),
        (SystemCall.IOCTL, (3, 0x40086602), False),
        (SystemCall.IOCTL, (3, 0x541B), True),
        (SystemCall.MKNODAT, (-100, 1, 0o020666), False),
        (SystemCall.MKNODAT, (-100, 1, 0o100666), True),
    ],
)
def test_without_namespaces_a_process_may_reach_itself_only(
    call: SystemCall, arguments: tuple[int, ...], allowed: bool
) -> None:
    for architecture in Architecture:
        program = assemble(among_other_processes(77), architecture)
        number = call.number(architecture)
        assert number is not None
        assert (decision(program, architecture.audit_number, number, *arguments) == ALLOWED) is allowed


LOCKING = """
import fcntl, struct
with open("data", "rb") as file:
    kind = struct.pack("hhqqixxxx", fcntl.F_RDLCK, 0, 0, 0, 0)
    for command in (fcntl.F_SETLK, fcntl.F_SETLKW, 37, 38):
        fcntl.fcntl(file, command, kind)
    fcntl.lockf(file, fcntl.LOCK_SH)
    fcntl.flock(file, fcntl.LOCK_SH)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("mode", MODES)
def test_a_lock_in_a_dry_run_keeps_no_real_writer_waiting(mode: SandboxMode, tmp_path: Path) -> None:
    need(mode)
    data = tmp_path / "data"
    data.write_text("real")
    environment = {**os.environ, SANDBOX_MODE: "" if mode == SandboxMode.ROOT else mode}
    with subprocess.Popen(
        [sys.executable, "-c", ENTER + LOCKING],
        env=environment,
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdin is not None
        assert script.stdout is not None
        assert [script.stdout.readline().strip() for _ in range(2)] == [str(mode), "held"]
        with data.open("r+") as writer:
            fcntl.lockf(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(writer, fcntl.LOCK_EX | fcntl.LOCK_NB)
        script.stdin.close()
    assert script.returncode == 0


@pytest.mark.parametrize("architecture", Architecture)
def test_without_namespaces_no_lock_is_taken_and_every_one_is_answered(architecture: Architecture) -> None:
    program, audit = assemble(among_other_processes(77), architecture), architecture.audit_number
    fcntl_number, flock_number = (call.number(architecture) for call in (SystemCall.FCNTL, SystemCall.FLOCK))
    assert fcntl_number is not None
    assert flock_number is not None
    for command in (6, 7, 37, 38):
        assert decision(program, audit, fcntl_number, 3, command, 1 << 40) == REFUSED
    for operation in (1, 2, 8, 1 | 4, 2 | 4):
        assert decision(program, audit, flock_number, 3, operation) == REFUSED


@pytest.mark.parametrize(
    ("header", "architecture"),
    [
        ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", Architecture.X86_64),
        ("/usr/include/asm-generic/unistd.h", Architecture.AARCH64),
    ],
)
def test_the_numbers_are_those_of_the_kernel(header: str, architecture: Architecture) -> None:
    if not Path(header).exists():
        pytest.skip("the headers of the kernel are not installed")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())
    numbers = {name: int(number) for name, number in defined}
    for call in SystemCall:
        number, name = call.number(architecture), call.name.lower()
        if name in numbers or (number is not None and number < max(numbers.values())):
            assert numbers.get(name) == number, name
