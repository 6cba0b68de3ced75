"""Cells whose scripts hang, start processes without end, fill the disk, write garbage or leave daemons.

Each runs in the fork server as in an agent. It must have an outcome, and leave no process and no file.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent.child_processes import Child
from pharoah_system.process_family import lives
from tests.harness.torch_server import TorchServer
from tests.harness.until import until, wait_until

RUN = """
import sys, tempfile
from dataclasses import replace
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.fork_server import BOUNDS, ForkServer
tempfile.tempdir = None  # what TMPDIR says, not what it said when the server began
server = ForkServer(0, replace(BOUNDS, processes=64, threads=300, scratch_bytes=16 << 20, scratch_files=200))
for text in sys.argv[1:]:
    print(server.run(Cell.from_json(text)).to_json())
"""
SCRIPT = """
import os, signal, subprocess, sys, time
from pathlib import Path
import torch
from torch._subclasses.fake_tensor import FakeTensor
from pharoah_benchmarks.workloads import Workload

FOLDER = Path({folder!r})

def daemon():
    '''A process in a session of its own, whose parent has ended.'''
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            (FOLDER / "new").write_text(str(os.getpid()))
            (FOLDER / "new").rename(FOLDER / "daemon")  # whoever sees the file reads the whole number
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not (FOLDER / "daemon").exists():
        time.sleep(0.01)

def answers():
    '''Descriptors of files in memory, which is where results are written.'''
    for name in os.listdir("/proc/self/fd"):
        link = Path(f"/proc/self/fd/{{name}}")
        if link.is_symlink() and "memfd:pharoah-answer" in os.readlink(link):
            yield int(name)

def build(width: int = 4) -> Workload:
    model = torch.nn.Linear(width, 1)
    def loss(net, drawn):
        if not isinstance(drawn[0], FakeTensor):
            misbehave()
        return net(drawn[0]).mean()
    return Workload(model, lambda: (torch.ones(2, width),), loss)

def misbehave():
    {body}
"""
HANGS = "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FORKS = "while True: os.fork()"
SHELLS = "subprocess.Popen(['/bin/sh', '-c', 'f() { f | f & }; f']); time.sleep(600)"
CHAIN = "[None for _ in iter(lambda: os.fork() == 0 or time.sleep(600), False)]"
FILLS = "[Path(f'{n}').write_bytes(bytes(1 << 20)) for n in range(1000) if time.sleep(0.005) is None]"
LARGE = "Path('large').open('wb').write(bytes(32 << 20))"
LITTERS = "[Path(f'{n}').touch() for n in range(100_000) if time.sleep(0.0005) is None]"
GARBAGE = "[os.write(one, b'\\xff{\"cell\": [') for one in answers()]; os._exit(0)"
LOUD = "[os.write(one, bytes(15 << 20)) for one in answers() for _ in range(3)]; os._exit(0)"
FALSE = '[os.write(one, b\'{"cell": "another", "outcome": "slow"}\') for one in answers()]; os._exit(0)'
DAEMON = "(FOLDER / 'daemon').exists() or daemon()"
STOPS = "os.kill(os.getpid(), signal.SIGSTOP)"
TEMPORARY = "import tempfile; tempfile.mkdtemp(); tempfile.mkstemp()"


@pytest.fixture(scope="module")
def server() -> Iterator[TorchServer]:
    with TorchServer() as server:
        yield server


def bad_workload(folder: Path, body: str, seconds: float) -> Cell:
    """A cell of a workload in `folder/workloads` that misbehaves so when it trains, not in its dry run."""
    workloads = folder / "workloads"
    workloads.mkdir()
    (workloads / "bad.toml").write_text('script = "bad.py"\n[settings]\nwidth = 4\n')
    (workloads / "bad.py").write_text(SCRIPT.format(folder=str(folder), body=body))
    return Cell("bad", "bad", {}, steps=2, limit_seconds=seconds)


def results(server: TorchServer, folder: Path, body: str, seconds: float, cells: int = 1) -> list[CellResult]:
    """The results of cells that misbehave so; nothing may be left of them when this returns."""
    order, temporary = bad_workload(folder, body, seconds), folder / "temporary"
    temporary.mkdir()
    orders = [replace(order, id=f"bad/{number}").to_json() for number in range(cells)]
    environment = {"PHAROAH_WORKLOADS": str(folder / "workloads"), "TMPDIR": str(temporary)}
    before = set(psutil.pids())
    lines = server.run_code(RUN, *orders, environment=environment).decode().splitlines()
    assert not list(temporary.iterdir()), "a file is left"
    left = [process for process in psutil.process_iter() if process.pid not in before and _of_cell(process, temporary)]
    assert not left, f"a process is left: {left}"
    return [CellResult.from_json(line) for line in lines]


def _of_cell(process: psutil.Process, temporary: Path) -> bool:
    """Whether a process works in a folder that a cell had; a deleted one keeps its name."""
    try:
        return str(temporary) in process.cwd() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("body", "seconds", "outcome", "detail"),
    [
        (HANGS, 2.0, Outcome.TIMEOUT, "longer than 2 s"),
        (STOPS, 2.0, Outcome.TIMEOUT, "longer than 2 s"),
        (FORKS, 60.0, Outcome.CRASH, "it has started more than 64 processes"),
        (SHELLS, 60.0, Outcome.CRASH, "it has started more than 64 processes"),
        (CHAIN, 60.0, Outcome.CRASH, "it has started more than 64 processes"),
        (FILLS, 60.0, Outcome.CRASH, "its scratch folder holds more than 16777216 bytes"),
        (LITTERS, 60.0, Outcome.CRASH, "its scratch folder holds more than 200 files"),
        (LARGE, 60.0, Outcome.ERROR, "OSError: [Errno 27] File too large"),
        (GARBAGE, 60.0, Outcome.CRASH, "its result cannot be read: "),
        (FALSE, 60.0, Outcome.CRASH, "its result cannot be read: outcome 'slow' is not one of"),
        (LOUD, 60.0, Outcome.CRASH, "its result "),
        (TEMPORARY, 60.0, Outcome.OK, ""),
    ],
    ids=["hangs", "stops", "forks", "shells", "chain", "fills", "litters", "large", "garbage", "false", "loud", "temp"],
)
def test_a_cell_that_misbehaves_is_contained_recorded_and_cleaned_up(
    body: str, seconds: float, outcome: Outcome, detail: str, server: TorchServer, tmp_path: Path
) -> None:
    (result,) = results(server, tmp_path, body, seconds)
    assert (result.cell, result.outcome, result.detail[: len(detail)]) == ("bad/0", outcome, detail)


def test_a_daemon_ends_with_its_cell_and_the_next_cell_runs(server: TorchServer, tmp_path: Path) -> None:
    first, second = results(server, tmp_path, DAEMON, 60.0, cells=2)
    assert (first.outcome, first.detail) == (Outcome.OK, "1 of its processes lived on and were ended")
    assert (second.outcome, second.detail) == (Outcome.OK, "")
    assert not psutil.pid_exists(int((tmp_path / "daemon").read_text()))


def test_a_daemon_ends_when_the_agent_stops_its_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = bad_workload(tmp_path, f"{DAEMON}; time.sleep(600)", 60.0)
    monkeypatch.setenv("PHAROAH_WORKLOADS", str(tmp_path / "workloads"))

    async def inside() -> None:
        async with Child("pharoah_benchmarks.campaign.fork_server", NodeProfile(threads=1), "0") as fork_server:
            asking = asyncio.create_task(fork_server.ask(order.to_json(), 100))
            await until((tmp_path / "daemon").exists, "the daemon to start", 60)
            asking.cancel()
            await asyncio.wait({asking})

    asyncio.run(inside())
    assert not lives(int((tmp_path / "daemon").read_text()))


KILLED_SERVER = """
import os, signal, sys, time
from pathlib import Path
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.dry_cell import dry_cell
if (server := os.fork()) == 0:
    dry_cell(Cell.from_json(sys.argv[1]))
    os._exit(0)
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
os.kill(server, signal.SIGKILL)
os.waitpid(server, 0)
"""
DRY_SCRIPT = """
import os, time
from pathlib import Path

def build(width: int = 4):
    new = Path({file!r}).with_suffix(".new")
    new.write_text(str(os.getpid()))
    new.rename({file!r})
    time.sleep(600)
"""


def test_the_dry_run_of_a_cell_ends_with_the_process_that_runs_it(server: TorchServer, tmp_path: Path) -> None:
    order, file = bad_workload(tmp_path, "pass", 60.0), tmp_path / "dry"
    (tmp_path / "workloads" / "bad.py").write_text(DRY_SCRIPT.format(file=str(file)))
    environment = {"PHAROAH_WORKLOADS": str(tmp_path / "workloads"), "TMPDIR": str(tmp_path)}
    server.run_code(KILLED_SERVER, order.to_json(), str(file), environment=environment)
    wait_until(lambda: not lives(int(file.read_text())), "the dry run to end, whose script sleeps for ten minutes")


def test_a_cell_leaves_no_core_dump(server: TorchServer) -> None:
    code = """
import json, resource
from pharoah_benchmarks.campaign.forked import Bounds, in_child
print(in_child(lambda: json.dumps(resource.getrlimit(resource.RLIMIT_CORE)), Bounds(seconds=20)).text)
"""
    assert json.loads(server.run_code(code)) in ([1, 1], [0, 0])


def test_a_folder_that_a_killed_owner_left_is_deleted_by_the_next_cell(server: TorchServer, tmp_path: Path) -> None:
    code = """
import json, os, signal, tempfile
from pathlib import Path
tempfile.tempdir = None
from pharoah_benchmarks.campaign.forked import Bounds, in_child
from pharoah_system.held_folders import hold_folder
if (owner := os.fork()) == 0:
    with hold_folder("ph-cell-") as folder:
        (folder.path / "file").touch()
        os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(owner, 0)
with hold_folder("ph-cell-") as held:
    seen = in_child(lambda: json.dumps(sorted(str(one) for one in Path(os.environ["TMPDIR"]).parent.iterdir())),
                    Bounds(seconds=20))
print(json.dumps([str(held.path), json.loads(seen.text)]))
"""
    mine, seen = json.loads(server.run_code(code, environment={"TMPDIR": str(tmp_path)}))
    assert mine in seen and len(seen) == 2, "the folder that is in use stays, beside that of the cell"
    assert not list(tmp_path.iterdir())
