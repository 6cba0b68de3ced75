"""A job started alone and under `pharoah run`, in the same surroundings: what it writes, and how it ends.

Streams that cannot be written and folders full of traps are made anew for each start, so that neither start sees what
the other has left.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from tests.harness.hostile_agent import AgentAnswer, hostile_agent

START_SECONDS = 90.0
"""Longest time of one start on a busy machine."""
OWN_VARIABLES = (
    "PHAROAH_SIDECAR", "PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
    "MALLOC_MMAP_THRESHOLD_",
)  # fmt: skip
"""Variables that a job has because of Pharoah or of a node's profile; docs/tenant/launch.md lists them."""
PROBE = f"""
import os, signal, stat, sys
for name in ("sitecustomize", "pharoah_finder", "pharoah"):
    print(name, name in sys.modules)
print(sys.path, sys.argv, sys.flags)
print({{name: value for name, value in sorted(os.environ.items()) if name not in {OWN_VARIABLES!r}}})
print([(number, str(signal.getsignal(number))) for number in (1, 2, 13, 15, 17, 25)])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []), oct(os.umask(0o22)), os.getpriority(0, 0))
kinds = {{}}
for number in range(64):
    try:
        kinds[number] = stat.S_IFMT(os.fstat(number).st_mode)
    except OSError:
        pass
print(kinds)
try:
    print(os.getcwd())
except OSError as error:
    print(type(error).__name__)
with open(os.environ["RESULT"], "w") as file:
    file.write(str(sys.path))
sys.exit(7)
"""
"""A job without torch that shows what it was given: search path, variables, signals, descriptors, folder."""
TRAIN = """
import os, sys
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
for _ in range(6):
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.save(model.state_dict(), os.environ["RESULT"])
print("loss", loss.item().hex())
sys.exit(3)
"""
TRAP = """
import os, sys
with open(os.environ["RESULT"] + ".trap", "a") as file:
    file.write(__name__ + "\\n")
raise RuntimeError(__name__ + " was imported from a folder of the user's")
"""
TRAPS = ("json", "grpc", "torch", "socket", "sitecustomize", "usercustomize", "argparse", "typing", "google",
         "cryptography", "asyncio", "select", "resource", "nacl", "zmq", "pynvml", "pharoah_archetypes")  # fmt: skip
"""Modules that a process of ours imports."""

Streams = Callable[[ExitStack], dict[str, int | None]]
"""Makes the streams of one start: a descriptor by name, None for one that is closed."""


def _full_pipe(held: ExitStack, *, blocking: bool = True) -> int:
    """The writing end of a pipe that nobody reads and that has no room."""
    read_end, write_end = os.pipe()
    held.callback(os.close, read_end)
    held.callback(os.close, write_end)
    os.set_blocking(write_end, False)
    while True:
        try:
            os.write(write_end, b"x" * 4096)
        except BlockingIOError:
            break
    os.set_blocking(write_end, blocking)
    return write_end


def _broken_pipe(held: ExitStack) -> int:
    read_end, write_end = os.pipe()
    os.close(read_end)
    held.callback(os.close, write_end)
    return write_end


def _device(held: ExitStack, path: str, flags: int = os.O_WRONLY) -> int:
    descriptor = os.open(path, flags)
    held.callback(os.close, descriptor)
    return descriptor


STREAMS: dict[str, Streams] = {
    "plain": lambda held: {},
    "stderr on a full disk": lambda held: {"stderr": _device(held, "/dev/full")},
    "stderr closed": lambda held: {"stderr": None},
    "stderr is a broken pipe": lambda held: {"stderr": _broken_pipe(held)},
    "stderr is a full pipe": lambda held: {"stderr": _full_pipe(held)},
    "stderr is a full pipe that does not wait": lambda held: {"stderr": _full_pipe(held, blocking=False)},
    "stderr can only be read": lambda held: {"stderr": _device(held, "/dev/zero", os.O_RDONLY)},
    "stdout closed": lambda held: {"stdout": None},
    "stdout on a full disk": lambda held: {"stdout": _device(held, "/dev/full")},
    "stdin closed": lambda held: {"stdin": None},
    "stdout and stderr closed": lambda held: {"stdout": None, "stderr": None},
    "all closed": lambda held: {"stdin": None, "stdout": None, "stderr": None},
}


def _plain_folder(folder: Path) -> dict[str, str]:
    return {}


def _with_traps(folder: Path) -> dict[str, str]:
    for name in TRAPS:
        (folder / f"{name}.py").write_text(TRAP)
    return {}


def _traps_on_the_path(folder: Path) -> dict[str, str]:
    _with_traps(folder)
    for name in ("sitecustomize.py", "usercustomize.py"):  # the job alone would import these, too
        (folder / name).unlink()
    return {"PYTHONPATH": str(folder)}


def _empty_entry_on_the_path(folder: Path) -> dict[str, str]:
    _traps_on_the_path(folder)
    return {"PYTHONPATH": f":{folder / 'none'}"}


def _own_sitecustomize(folder: Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text("import sys; sys.mine = __name__")
    return {"PYTHONPATH": str(folder)}


def _broken_sitecustomize(folder: Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text("raise KeyError('of the user')")
    return {"PYTHONPATH": str(folder)}


def _deleted(folder: Path) -> dict[str, str]:
    shutil.rmtree(folder)
    return {}


def _not_writable(folder: Path) -> dict[str, str]:
    folder.chmod(0o555)
    return {"TMPDIR": "/nowhere", "HOME": "/nowhere", "XDG_RUNTIME_DIR": "/nowhere"}


def _odd_settings(folder: Path) -> dict[str, str]:
    return {
        "PYTHONSAFEPATH": "1",
        "PYTHONSTARTUP": str(folder / "none.py"),
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "ascii",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "7",
    }


def _linked_runtime_folder(folder: Path) -> dict[str, str]:
    (folder / "link").symlink_to("/etc")
    return {"XDG_RUNTIME_DIR": str(folder / "link")}


FOLDERS: dict[str, Callable[[Path], dict[str, str]]] = {
    "plain": _plain_folder,
    "modules in the current folder": _with_traps,
    "modules on PYTHONPATH": _traps_on_the_path,
    "an empty entry on PYTHONPATH": _empty_entry_on_the_path,
    "a sitecustomize of the user's": _own_sitecustomize,
    "a broken sitecustomize of the user's": _broken_sitecustomize,
    "deleted": _deleted,
    "not writable": _not_writable,
    "odd settings of Python": _odd_settings,
    "a runtime folder that is a link": _linked_runtime_folder,
}
"""Makes the current folder of one start; gives further variables."""


def surroundings() -> list[tuple[str, str]]:
    """Every pair of streams and folder in which a job alone comes to its end: Python itself prints the error of a
    `sitecustomize`, and waits for room in a full pipe for ever."""
    waits_alone = ("stderr is a full pipe", "a broken sitecustomize of the user's")
    return [pair for pair in product(STREAMS, FOLDERS) if pair != waits_alone]


@dataclass(frozen=True)
class Ended:
    """How one start has ended."""

    exit_code: int
    output: bytes
    files: dict[str, bytes]
    """What the job has written."""
    errors: bytes = b""
    seconds: float = 0.0

    def same_as(self, other: Ended) -> bool:
        return (self.exit_code, self.output, self.files) == (other.exit_code, other.output, other.files)


@dataclass(frozen=True)
class Start:
    """A job and its surroundings."""

    command: Sequence[str]
    streams: str = "plain"
    folder: str = "plain"
    options: tuple[str, ...] = ()
    """Options of `pharoah run`."""
    environment: dict[str, str] = field(default_factory=dict)
    ignored: tuple[signal.Signals, ...] = ()
    """Signals that are ignored when the job is started, as `nohup` does it."""
    group: Path | None = None
    """The control group in which it is started."""
    prepare: Callable[[], None] | None = None
    """Called in the new process before its program begins, as a limit is set by a shell."""

    def alone(self, root: Path) -> Ended:
        return _ended(self, list(self.command), root)

    def under_profile(self, root: Path, stated: str) -> Ended:
        """Started by the command that puts a profile into force."""
        return _ended(self, [sys.executable, "-P", "-m", "pharoah_protocol.node_profile", stated, *self.command], root)

    def under_pharoah(self, root: Path, answer: AgentAnswer | None = None) -> Ended:
        """`answer` is what the node's agent says; None: there is no agent."""
        command = [sys.executable, "-P", "-m", "pharoah", "run", *self.options, "--", *self.command]
        if answer is None:
            return _ended(self, command, root)
        with hostile_agent(root / "agent.sock", answer):
            return _ended(self, command, root)


def tenant_settings(root: Path) -> dict[str, str]:
    """Variables of a tenant whose provider cannot be reached, so that the node's agent is asked all the same."""
    (root / "provider.pub").write_text("ab" * 32 + "\n")
    (root / "token").write_text("t" * 32 + "\n")
    (root / "token").chmod(0o600)
    return {
        "PHAROAH_ENDPOINT": f"unix:{root}/nobody.sock",
        "PHAROAH_PROVIDER_KEY_FILE": str(root / "provider.pub"),
        "PHAROAH_TOKEN_FILE": str(root / "token"),
        "PHAROAH_NODE_SOCKET": str(root / "agent.sock"),
        "PHAROAH_STATE_DIR": str(root / "state"),
        "PHAROAH_TIMEOUT_S": "1",
    }


@contextmanager
def started_jobs() -> Iterator[Path]:
    """A folder for starts, with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="started-", dir="/tmp") as folder:
        yield Path(folder)


def _ended(start: Start, command: list[str], root: Path) -> Ended:
    with ExitStack() as held, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        results, folder = root / "results", root / "folder"
        for made in (results, folder):
            shutil.rmtree(made, ignore_errors=True)
            made.mkdir()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PHAROAH_", "PYTHON"))}
        environ = {**inherited, **tenant_settings(root), **start.environment, "RESULT": str(results / "result")}
        extra = _device(held, os.devnull)  # a descriptor that the job is given
        here = os.open(folder, os.O_RDONLY)
        held.callback(os.close, here)
        environ |= FOLDERS[start.folder](folder)
        given = {"stdin": _device(held, os.devnull, os.O_RDONLY), "stdout": output.fileno(), "stderr": errors.fileno()}
        streams = {**given, **STREAMS[start.streams](held)}
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            env=environ,
            close_fds=False,
            process_group=0,  # a job may signal its own group
            preexec_fn=lambda: _become(start, here, extra, list(streams.values())),
        )
        try:
            exit_code = process.wait(START_SECONDS)
        finally:
            process.kill()
            process.wait()
        seconds = time.monotonic() - began
        for stream in (output, errors):
            stream.seek(0)
        files = {path.name: _content(path) for path in sorted(results.iterdir())}
        return Ended(exit_code, output.read(), files, errors.read(), seconds)


def _become(start: Start, folder: int, extra: int, streams: Sequence[int | None]) -> None:
    """In the new process: its folder, its signals, its streams, and one more descriptor, always the same."""
    if start.group is not None:
        (start.group / "cgroup.procs").write_text("0")
    os.fchdir(folder)
    for ignored in start.ignored:
        signal.signal(ignored, signal.SIG_IGN)
    os.dup2(extra, 60)
    for number, stream in enumerate(streams):
        if stream is None:
            os.close(number)
        else:
            os.dup2(stream, number)
    if start.prepare is not None:
        start.prepare()


def _content(path: Path) -> bytes:
    return path.read_bytes()
