"""Jobs under limits, in odd surroundings, of odd behaviour, beside peers and sidecars that misbehave.

Each is started alone and under `pharoah run`, and must write the same output and files and end in the same way. Agents
that answer anything, streams that cannot be written and folders full of traps are in `job_start`, groups of memory in
`memory_group`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from evaluation.figures import Figures
from tests.harness.started_jobs import PROBE, TRAIN, Start, started_jobs, tenant_settings

AT_ONCE = 2
QUICK_STRIDE = 6
"""The short form runs every sixth case."""
MIB = 1 << 20
PYTHON = sys.executable
WRITES = """
import os, sys, time
time.sleep(0.5)
with open(os.environ["RESULT"], "w") as file:
    file.write("written")
print("out", flush=True)
sys.exit(7)
"""
"""A job that says and writes something."""
_NO_NEW_PRIVILEGES = 38
"""`prctl` option (linux/prctl.h)."""
_NAMESPACES = {"mount": 0x00020000, "network": 0x40000000, "user": 0x10000000, "names": 0x04000000, "ipc": 0x08000000}
"""Flags of unshare(2)."""

STOPS_ITS_SIDECAR = """
import os, signal
import pharoah
session = pharoah.register()
from pharoah_system.local_sockets import peer_credentials
os.kill(peer_credentials(session._link._socket).process, signal.SIGSTOP)
print("last line", flush=True)
"""
MAX_END_SECONDS = 4.0
"""From the last line of that job to the end of `pharoah run`: its 2 s (PHAROAH_SHUTDOWN_TIMEOUT_S) once, and the time
in which two interpreters end and one starts. With 2 s for each of the two it was 6.6 s."""

Beside = Callable[[Path], AbstractContextManager[object]]
"""What goes on beside a job that is started with a folder."""


@dataclass(frozen=True)
class Case:
    """One job with its surroundings."""

    name: str
    start: Start
    beside: Beside = lambda _: nullcontext()


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add `job_harm_differs`. The cases are the same for every seed."""
    del seed
    with tempfile.TemporaryDirectory() as folder:
        cases = list(_cases(Path(folder)))[:: QUICK_STRIDE if quick else 1]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            differ = [case.name for case, same in zip(cases, pool.map(_is_same, cases), strict=True) if not same]
        script = Path(folder, "stops.py")
        script.write_text(STOPS_ITS_SIDECAR)
        took = _end_seconds(script)
    figures.add("stopped_sidecar_end_seconds", took, f"<= {MAX_END_SECONDS:g}", took <= MAX_END_SECONDS)
    figures.details["job_harm_differs"] = differ
    figures.add("job_harm_differs", len(differ), "0", not differ, f"{len(cases)} cases")


def _is_same(case: Case) -> bool:
    with started_jobs() as root:
        with case.beside(root):
            alone = case.start.alone(root)
        with case.beside(root):
            under = case.start.under_pharoah(root)
    if not (same := under.same_as(alone)):
        print(f"  DIFFERS: {case.name}\n    {alone}\n    {under}", flush=True)
    return same


def _end_seconds(script: Path) -> float:
    """How long `pharoah run` goes on after the last line of a job whose sidecar is stopped."""
    with started_jobs() as root:
        environ = {**os.environ, **tenant_settings(root)}
        command = [PYTHON, "-P", "-m", "pharoah", "run", "--", PYTHON, str(script)]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            process.wait()
            return time.monotonic() - began


def _python(code: str, *options: str) -> tuple[str, ...]:
    return (PYTHON, *options, "-c", code)


def _limited(limit: int, soft: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(limit, (soft, soft))


def _cases(folder: Path) -> Iterator[Case]:
    yield from _limits()
    yield from _surroundings(folder)
    yield from _interpreters(folder)
    yield from _behaviours()
    yield from _peers()
    yield from _sidecars()


def _limits() -> Iterator[Case]:
    kinds = {
        "20 files": (resource.RLIMIT_NOFILE, 20),
        "64 files": (resource.RLIMIT_NOFILE, 64),
        "600 MB of addresses": (resource.RLIMIT_AS, 600 * MIB),
        "4 GB of addresses": (resource.RLIMIT_AS, 4096 * MIB),
        "300 MB of data": (resource.RLIMIT_DATA, 300 * MIB),
        "1 MB of stack": (resource.RLIMIT_STACK, MIB),
        "files of 1 MB": (resource.RLIMIT_FSIZE, MIB),
        "20 seconds of a processor": (resource.RLIMIT_CPU, 20),
        "no core dumps": (resource.RLIMIT_CORE, 0),
        "no locked memory": (resource.RLIMIT_MEMLOCK, 0),
        "no message queues": (resource.RLIMIT_MSGQUEUE, 0),
    }
    for name, (limit, soft) in kinds.items():
        yield Case(name, Start(_python(WRITES), prepare=_limited(limit, soft)))

    def last_in_line() -> None:
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        os.setpriority(os.PRIO_PROCESS, 0, 19)

    yield Case("no new privileges, nice 19", Start(_python(PROBE), prepare=last_in_line))
    for name, flag in _NAMESPACES.items():
        yield Case(f"a namespace of its own: {name}", Start(_python(WRITES), prepare=_unshares(flag)))
    blocked = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    yield Case(
        "blocked signals",
        Start(_python(PROBE), prepare=lambda: void(signal.pthread_sigmask(signal.SIG_BLOCK, blocked))),
    )
    yield Case("ignored signals", Start(_python(PROBE), ignored=(signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP)))


def void(_: object) -> None:
    """Drop a value: what prepares a process gives none."""


def _unshares(flag: int) -> Callable[[], None]:
    return lambda: void(ctypes.CDLL(None).unshare(flag))


def _surroundings(folder: Path) -> Iterator[Case]:
    file = folder / "file"
    file.touch()
    fifo = folder / "fifo"
    os.mkfifo(fifo)
    settings: dict[str, dict[str, str]] = {
        "no HOME": {"HOME": ""},
        "HOME is a file": {"HOME": str(file)},
        "no PATH": {"PATH": ""},
        "TMPDIR is a file": {"TMPDIR": str(file)},
        "TMPDIR is not there": {"TMPDIR": "/nowhere"},
        "the state folder is a file": {"PHAROAH_STATE_DIR": str(file)},
        "the state folder is not there": {"PHAROAH_STATE_DIR": "/proc/nowhere"},
        "the provider's key is a fifo": {"PHAROAH_PROVIDER_KEY_FILE": str(fifo)},
        "the token is a fifo": {"PHAROAH_TOKEN_FILE": str(fifo)},
        "the verdict goes to a full disk": {"PHAROAH_VERDICT_FILE": "/dev/full"},
        "the verdict goes to a fifo": {"PHAROAH_VERDICT_FILE": str(fifo)},
        "1.5 MB of variables": {f"MINE_{number}": "x" * 100_000 for number in range(15)},
        "a name with odd letters": {"a.b-c": "1", "BASH_FUNC_x%%": "() { :; }"},
        "no provider": {"PHAROAH_ENDPOINT": ""},
        "no language": {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "LANG": ""},
    }
    for name, environment in settings.items():
        yield Case(name, Start(_python(WRITES), environment=environment))


def _interpreters(folder: Path) -> Iterator[Case]:
    module, archive = folder / "mine.py", folder / "mine.pyz"
    module.write_text(WRITES)
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("__main__.py", WRITES)
    for options in (("-I",), ("-S",), ("-E", "-s", "-B", "-OO"), ("-u",), ("-X", "tracemalloc"), ("-P",)):
        yield Case(f"python {' '.join(options)}", Start(_python(WRITES, *options)))
    yield Case("python -X dev -W error", Start(_python(WRITES, "-X", "dev", "-W", "error")))
    yield Case("a module", Start((PYTHON, "-m", "mine"), environment={"PYTHONPATH": str(folder)}))
    yield Case("a zipapp", Start((PYTHON, str(archive))))
    yield Case("standard input", Start(("sh", "-c", f"{PYTHON} - < {module}")))
    yield Case("a training job", Start(_python(TRAIN)))
    for words in (("true",), ("false",), ("sh", "-c", "exit 5"), ("sh", "-c", "kill -9 $$"), ("echo", "one", "two")):
        yield Case(f"another program: {' '.join(words)}", Start(words))


BEHAVIOURS = {
    "closes all descriptors": "import os\nos.closerange(0, 256)\nos._exit(4)",
    "becomes another program": f"import os, sys\nos.execv({PYTHON!r}, ['python', '-c', {WRITES!r}])",
    "leaves at once": "import os\nprint('x', flush=True)\nos._exit(9)",
    "dies of SIGSEGV": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "dies of SIGKILL": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "dies of SIGTERM": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)",
    "leaves with the code of a signal": "import sys\nsys.exit(137)",
    "an exception": "raise ValueError('no such data')",
    "becomes a daemon": """
import os, time
if os.fork():
    os._exit(6)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 3)
with open(os.environ["RESULT"], "w") as file:
    file.write("daemon")
""",
    "forks 300 times": """
import os
ends = 0
for _ in range(300):
    pid = os.fork()
    if not pid:
        os._exit(3)
    ends += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(ends)
""",
    "waits for all children": """
import os
for number in range(3):
    if not os.fork():
        os._exit(number)
ends = []
while True:
    try:
        ends.append(os.waitstatus_to_exitcode(os.wait()[1]))
    except ChildProcessError:
        break
print(sorted(ends))
""",
    "signals its own group": """
import os, signal, time
seen = []
signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
os.killpg(os.getpgid(0), signal.SIGUSR1)
time.sleep(0.5)
print(bool(seen))
""",
    "a session of its own": "import os\ntry:\n    os.setsid()\nexcept OSError:\n    pass\nprint(os.getsid(0) > 0)",
    "spawns": """
import multiprocessing
context = multiprocessing.get_context("spawn")
child = context.Process(target=print, args=("from the child",))
child.start()
child.join()
print(child.exitcode)
""",
    "stops and goes on": """
import os, signal, time
pid = os.fork()
if not pid:
    time.sleep(0.3)
    os.kill(os.getppid(), signal.SIGCONT)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(pid, 0)
print("went on")
""",
    "writes 4 MB": "import sys\nsys.stdout.write('x' * (4 << 20))",
}
"""What a job does, as code."""


def _behaviours() -> Iterator[Case]:
    for name, code in BEHAVIOURS.items():
        yield Case(name, Start(_python(code)))


class _Peer:
    """Listens on a Unix socket, or a port of loopback, and treats whoever connects in one way."""

    def __init__(self, way: str) -> None:
        self._way, self._over, self._open = way, threading.Event(), list[socket.socket]()

    @contextlib.contextmanager
    def at(self, listening: socket.socket) -> Iterator[None]:
        listening.listen(64)
        listening.settimeout(0.1)
        thread = threading.Thread(target=self._accept, args=(listening,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            for each in (*self._open, listening):
                each.close()

    def _accept(self, listening: socket.socket) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                accepted, _ = listening.accept()
                self._open.append(accepted)
                if self._way == "reset":
                    accepted.close()
                elif self._way == "junk":
                    accepted.sendall(os.urandom(4096))
                elif self._way == "drip":
                    threading.Thread(target=self._drip, args=(accepted,), daemon=True).start()

    def _drip(self, accepted: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while not self._over.wait(0.2):
                accepted.sendall(b"\0")


def _peers() -> Iterator[Case]:
    for way in ("silent", "junk", "drip", "reset"):

        @contextlib.contextmanager
        def provider(root: Path, way: str = way) -> Iterator[None]:
            with socket.socket(socket.AF_UNIX) as listening:
                (root / "nobody.sock").unlink(missing_ok=True)
                listening.bind(str(root / "nobody.sock"))
                with _Peer(way).at(listening):
                    yield

        yield Case(f"a provider: {way}", Start(_python(WRITES)), provider)
    for way in ("silent", "drip"):
        listening = socket.create_server(("127.0.0.1", 0))
        environment = {"PHAROAH_ALERT_URL": f"http://127.0.0.1:{listening.getsockname()[1]}/"}

        @contextlib.contextmanager
        def receiver(_: Path, way: str = way, listening: socket.socket = listening) -> Iterator[None]:
            with _Peer(way).at(listening.dup()):
                yield

        yield Case(f"a receiver of alerts: {way}", Start(_python(WRITES), environment=environment), receiver)


def _sidecars() -> Iterator[Case]:
    lasting = WRITES.replace("0.5", "3")
    for name, number, again, job in (
        ("stopped early", signal.SIGSTOP, False, WRITES),
        ("stopped while the job runs", signal.SIGSTOP, False, lasting),
        ("killed", signal.SIGKILL, False, lasting),
        ("killed again and again", signal.SIGKILL, True, lasting),
        ("stopped beside a training job", signal.SIGSTOP, False, TRAIN),
    ):

        @contextlib.contextmanager
        def signalled(root: Path, number: int = number, again: bool = again) -> Iterator[None]:
            over = threading.Event()
            thread = threading.Thread(target=_signal_sidecars, args=(root, number, again, over), daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

        yield Case(f"its sidecar is {name}", Start(_python(job)), signalled)


def _signal_sidecars(root: Path, number: int, again: bool, over: threading.Event) -> None:
    """Send a signal to the sidecars of jobs that were started with a folder."""
    done: set[int] = set()
    while not over.wait(0.05):
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if int(process.name) in done and not again:
                    continue
                words = (process / "cmdline").read_bytes()
                if b"'pharoah.sidecar'" in words and str(root).encode() in (process / "environ").read_bytes():
                    os.kill(int(process.name), number)
                    done.add(int(process.name))
