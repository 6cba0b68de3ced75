"""The dry run of a step function, in a fork of the job: what the job shares with others stays as it is."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path

from pharoah.dryrun.parent import _ForkedChild
from pharoah.dryrun.shared_memory import Mapping, select_shared_memory
from tests.harness.torch_server import TorchServer
from tests.tenant_sdk.conftest import TRAIN

STEP = """
    model(torch.randn(4, 8)).pow(2).mean().backward()
    optimizer.step()
"""
SHARED = f"""{TRAIN}
import mmap, multiprocessing, sys
import numpy
from pharoah.dryrun import dry_run_step
processes = multiprocessing.get_context("fork")
counter = torch.full((1,), 7).share_memory_()
seen = counter.numpy()
value, lock = processes.Value("i", 5), processes.Lock()
rows = numpy.memmap(sys.argv[1], dtype="int64", mode="r+")
memory = mmap.mmap(-1, 3 * mmap.PAGESIZE)
memory[-1] = 3
def step():
    assert (seen[0], value.value, rows[0], memory[-1]) == (7, 5, 0, 3)
    lock.acquire()
    seen[0] = value.value = rows[0] = memory[-1] = 1{STEP}
assert dry_run_step(step, 60.0).fingerprint.grammar.startswith("fwd: gemm act gemm")
print(counter.item(), value.value, rows[0], memory[-1], lock.acquire(block=False))
"""
"""A step that writes to all kinds of shared memory, and holds a lock when its dry run is killed."""


def test_what_a_job_shares_with_others_stays_as_it_is(torch_server: TorchServer, tmp_path: Path) -> None:
    file = tmp_path / "rows"
    file.write_bytes(bytes(64))
    assert torch_server.run_code(SHARED, str(file)) == b"7 5 0 3 True\n"
    assert file.read_bytes() == bytes(64)


SHORTER = f"""{TRAIN}
import mmap, os, sys
from pharoah.dryrun import dry_run_step
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
    os.ftruncate(file.fileno(), mmap.PAGESIZE)
def step():
    assert mapped[0] == 9{STEP}
print(dry_run_step(step, 60.0).fingerprint.grammar[:18])
"""


def test_a_mapped_file_that_has_become_shorter_does_not_end_the_dry_run(
    torch_server: TorchServer, tmp_path: Path
) -> None:
    file = tmp_path / "rows"
    file.write_bytes(b"\t" + bytes(3 * mmap.PAGESIZE))
    assert torch_server.run_code(SHORTER, str(file)) == b"fwd: gemm act gemm\n"


COUNTED = f"""{TRAIN}
import mmap
from pharoah.dryrun import dry_run_step
def step():{STEP}
alone = dry_run_step(step, 60.0).cost.process_bytes
memory = mmap.mmap(-1, 64 << 20)
print(abs(dry_run_step(step, 60.0).cost.process_bytes - alone) < 32 << 20)
"""


def test_copies_are_no_memory_that_the_job_needs(torch_server: TorchServer) -> None:
    assert torch_server.run_code(COUNTED) == b"True\n"


LARGE = """
import mmap, os, sys
from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run_step
size = 4 << 40
with open(sys.argv[1], "w+b") as file:
    os.ftruncate(file.fileno(), size)
    mapped = mmap.mmap(file.fileno(), size)
try:
    dry_run_step(lambda: None, 60.0)
except UnknownReason as reason:
    print(reason)
"""


def test_more_shared_memory_than_there_is_room_for_is_the_reason(torch_server: TorchServer, tmp_path: Path) -> None:
    reason = torch_server.run_code(LARGE, str(tmp_path / "sparse"))
    assert reason.startswith(b"the job shares 4096.0 GiB of memory")


def mapping(permissions: str, path: str, file: str = "00:01 7") -> Mapping:
    return Mapping(0x7F0000000000, 4096, permissions, file, path)


def test_memory_is_copied_and_devices_and_code_are_not() -> None:
    copied = [
        mapping("rw-s", "/dev/zero (deleted)"),
        mapping("rw-s", "/dev/shm/sem.x (deleted)"),
        mapping("rw-s", "/memfd:arena (deleted)"),
        mapping("rw-s", "/SYSV00000000 (deleted)"),
        mapping("rw-s", "/home/me/rows of mine"),
    ]
    left = [
        mapping("rw-p", ""),
        mapping("r--s", "/home/me/rows"),
        mapping("rw-s", "/dev/nvidia0"),
        mapping("rw-s", "/dev/infiniband/uverbs0"),
        mapping("rw-s", "/sys/devices/pci0000:00/resource0"),
        mapping("rw-s", "anon_inode:[io_uring]"),
        mapping("rw-s", "/memfd:libffi (deleted)", "00:01 8"),
        mapping("r-xs", "/memfd:libffi (deleted)", "00:01 8"),
    ]
    assert select_shared_memory([*copied, *left]) == copied


HANGS = """
import os, signal
from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run_step
os.register_at_fork(after_in_child=signal.pause)
try:
    dry_run_step(lambda: None, 0.2)
except UnknownReason as reason:
    print(reason)
"""
"""A fork handler that never returns: the child of the dry run never begins a session of its own."""


def test_a_child_that_hangs_in_a_fork_handler_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "the dry run took longer than 0.2 s\n", done.stderr


def test_a_job_that_waits_for_all_of_its_children_does_not_lose_its_dry_run() -> None:
    child = subprocess.Popen(["true"])
    os.waitpid(child.pid, 0)  # as `while True: os.wait()` does in another thread
    assert _ForkedChild(child.pid).wait() == child.wait() == 0
