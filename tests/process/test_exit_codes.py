"""How a process that has registered ends is reported: by an exception, with an exit code, or well."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pharoah
from pharoah._process_end import CUT, MAX_ERROR_LENGTH
from pharoah._sidecar_link import SIDECAR
from pharoah._verdict import unknown
from pharoah.end_causes import EndFacts, judge_end
from pharoah_protocol.local_messages import MAX_MESSAGE_BYTES, decode, encode
from pharoah_protocol.rank_messages import End, Ended, Hello, HelloAnswer
from pharoah_protocol.vocabulary import Attribution, EndState

OK = (EndState.OK, 0, "")
FAILED = EndState.FAILED


class Sidecar:
    """Answers ranks, one after the other, and keeps the ends that they report."""

    def __init__(self, path: Path) -> None:
        self.ends: list[tuple[EndState, int, str]] = []
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                packet = connection.recv(MAX_MESSAGE_BYTES)
                if packet == b"end":
                    return
                while packet:
                    self._answer(connection, packet)
                    packet = connection.recv(MAX_MESSAGE_BYTES)

    def _answer(self, connection: socket.socket, packet: bytes) -> None:
        message = decode(packet).message
        if isinstance(message, Hello):
            connection.send(encode(HelloAnswer(vars(unknown("a test")))))
        elif isinstance(message, End):
            assert not message.stated
            self.ends.append((message.state, message.status, message.error))
            connection.send(encode(Ended()))

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(self.path)
            last.send(b"end")
            self._thread.join()
        self._listener.close()


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    one = Sidecar(tmp_path / "s")
    yield one
    one.close()


def run(source: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(source))
    return subprocess.run(
        [sys.executable, str(path)], env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )


HYDRA = """
    import sys, traceback
    {register}
    def train():
        raise ValueError("no such data")
    def main():
        try:
            train()
        except Exception:
            traceback.print_exc()
            sys.exit(1)
    main()
    """


def leaves(*lines: str) -> str:
    return "import sys, threading\n{register}\n" + "\n".join(lines)


ENDS = {
    "returns": (leaves(), OK),
    "an exception": (leaves("raise ValueError('no such data')"), (FAILED, 0, "ValueError: no such data")),
    "a code": (leaves("sys.exit(3)"), (FAILED, 3, "")),
    "a code of the builtin function": (leaves("exit(3)"), (FAILED, 3, "")),
    "a named code of the builtin function": (leaves("quit(code=4)"), (FAILED, 4, "")),
    "a code of the builtin function that is caught": (leaves("try: exit(1)", "except SystemExit: pass", "exit()"), OK),
    "a code while an exception is handled": (HYDRA, (FAILED, 1, "ValueError: no such data")),
    "a message": (leaves("sys.exit('no such data')"), (FAILED, 1, "SystemExit: no such data")),
    "the code of a signal": (leaves("sys.exit(143)"), (FAILED, 143, "")),
    "a code of which one byte is left": (leaves("sys.exit(256)"), OK),
    "no code": (leaves("sys.exit()"), OK),
    "the code 0": (leaves("sys.exit(0)"), OK),
    "a code that is caught": (leaves("try: sys.exit(1)", "except SystemExit: pass"), OK),
    "a code that is caught in a function": (
        leaves("def main():", "    try: sys.exit(1)", "    except SystemExit: pass", "main()", "print(1)"),
        OK,
    ),
    "a code that is caught and raised again": (
        leaves("try: sys.exit(1)", "except SystemExit: print(1)", "try: sys.exit(4)", "finally: print(2)"),
        (FAILED, 4, ""),
    ),
    "a code that is caught and kept, then another one": (
        leaves("try: sys.exit(1)", "except SystemExit as kept: mine = kept", "sys.exit(0)"),
        OK,
    ),
    "a code in another thread": (
        leaves("thread = threading.Thread(target=sys.exit, args=(1,))", "thread.start()", "thread.join()"),
        OK,
    ),
    "an exception after a code that was caught": (
        leaves("try: sys.exit(3)", "except SystemExit: pass", "raise ValueError('no such data')"),
        (FAILED, 0, "ValueError: no such data"),
    ),
    "an exception that another hook hides": (
        leaves("sys.excepthook = lambda *_: print('shown')", "raise ValueError('no such data')"),
        (FAILED, 0, "ValueError: no such data"),
    ),
    "an exception whose hook leaves with a code": (
        leaves("sys.excepthook = lambda *_: sys.exit(3)", "raise ValueError('no such data')"),
        (FAILED, 0, "ValueError: no such data"),
    ),
    "the code 0 after an exception that a library has kept, as IPython does": (
        leaves(
            "def shown():",
            "    try: 1 / 0",
            "    except ZeroDivisionError as error: sys.last_value, sys.last_traceback = error, error.__traceback__",
            "shown()",
            "raise SystemExit(0)",
        ),
        OK,
    ),
    "too many codes": (leaves("sys.exit(1, 2)"), (FAILED, 0, "TypeError: exit expected at most 1 argument, got 2")),
}


@pytest.mark.parametrize(("source", "end"), ENDS.values(), ids=ENDS)
def test_an_end_is_reported_as_it_is_and_looks_as_without_us(
    source: str, end: tuple[EndState, int, str], tmp_path: Path, sidecar: Sidecar
) -> None:
    bare = run(source.format(register=""), tmp_path)
    watched = run(source.format(register="import pharoah; pharoah.register()"), tmp_path, **{SIDECAR: sidecar.path})
    assert sidecar.ends == [end]
    assert (watched.returncode, watched.stdout) == (bare.returncode, bare.stdout)
    assert watched.stderr.splitlines()[-1:] == bare.stderr.splitlines()[-1:]


def test_a_program_that_is_a_module_is_reported_as_well(tmp_path: Path, sidecar: Sidecar) -> None:
    (tmp_path / "job.py").write_text("import sys, pharoah\npharoah.register()\nsys.exit(3)\n")
    environment = {**os.environ, SIDECAR: sidecar.path}
    done = subprocess.run([sys.executable, "-m", "job"], cwd=tmp_path, env=environment)
    assert (done.returncode, sidecar.ends) == (3, [(FAILED, 3, "")])


UNREADABLE = """
    import os, sys
    {register}
    import torch.utils.data
    class Shards(torch.utils.data.Dataset):
        def __len__(self):
            return 1
        def __getitem__(self, depth):
            return self.decoded(depth + 1)
        def decoded(self, depth):
            return self.opened(depth + 1)
        def opened(self, depth):
            if depth < 9:
                return self.decoded(depth + 1)
            raise OSError(5, os.strerror(5), "/data/shard-00017.tar")
    for _ in torch.utils.data.DataLoader(Shards(), num_workers=1, multiprocessing_context="fork"):
        pass
    """


def test_the_cause_at_the_end_of_a_long_error_is_reported(tmp_path: Path, sidecar: Sidecar) -> None:
    """A worker of a DataLoader sends its whole traceback, whose last line is the cause."""
    source = UNREADABLE.replace("{register}", "import pharoah; pharoah.register()")
    done = run(source, tmp_path, **{SIDECAR: sidecar.path})
    [(state, status, error)] = sidecar.ends
    assert (state, status) == (FAILED, 0), done.stderr
    assert error.startswith("OSError: Caught OSError in DataLoader worker process 0.")
    assert CUT in error and len(error) == MAX_ERROR_LENGTH
    assert judge_end(EndFacts(error=error), FAILED).attribution is Attribution.NODE


SPAWNED = """
    import sys
    import {package} as mp
    def target(rank, *_):
        import pharoah
        pharoah.register()
        {ending}
    if __name__ == "__main__":
        {start}
    """
START = "one = mp.get_context('{method}').Process(target=target, args=(0,)); one.start(); one.join()"
STARTS = {
    "torch": ("torch.multiprocessing", "mp.spawn(target, nprocs=1)"),
    "spawn": ("multiprocessing", START.format(method="spawn")),
    "forkserver": ("multiprocessing", START.format(method="forkserver")),
    "set to forkserver": (
        "multiprocessing",
        "mp.set_start_method('forkserver'); one = mp.Process(target=target, args=(0,)); one.start(); one.join()",
    ),
}


@pytest.mark.parametrize(
    ("starter", "ending", "end"),
    [
        ("torch", "raise ValueError('no such data')", (FAILED, 1, "ValueError: no such data")),
        ("torch", "return", OK),
        ("spawn", "raise ValueError('no such data')", (FAILED, 1, "")),
        ("spawn", "sys.exit(3)", (FAILED, 3, "")),
        ("spawn", "return", OK),
        ("forkserver", "raise ValueError('no such data')", (FAILED, 0, "ValueError: no such data")),
        ("forkserver", "sys.exit(3)", (FAILED, 3, "")),
        ("forkserver", "sys.exit()", OK),
        ("forkserver", "return", OK),
        ("set to forkserver", "return", OK),
    ],
)
def test_a_process_that_a_script_spawns_is_reported(
    starter: str, ending: str, end: tuple[EndState, int, str], tmp_path: Path, sidecar: Sidecar
) -> None:
    package, start = STARTS[starter]
    source = SPAWNED.format(package=package, ending=ending, start=start)
    done = run(source, tmp_path, **{SIDECAR: sidecar.path})
    assert sidecar.ends == [end], done.stderr


INJECTED = {"PYTHONPATH": str(Path(pharoah.__file__).with_name("_inject"))}
"""What `pharoah run` gives to the processes of a job."""
EARLY_FAILURES = {
    "an exception": ("raise ValueError('no such data')", [(FAILED, 0, "ValueError: no such data")]),
    "a code while an exception is handled": (
        "try: 1 / 0\nexcept ZeroDivisionError: sys.exit(3)",
        [(FAILED, 3, "ZeroDivisionError: division by zero")],
    ),
    "a code alone, which whoever waits for the process knows": ("sys.exit(3)", []),
    "a launcher whose rank has failed": ("import subprocess\nsubprocess.run('exit 3', shell=True, check=True)", []),
    "a forked child": ("import os\npid = os.fork()\nif not pid: raise ValueError('no')\nos.waitpid(pid, 0)", []),
    "none": ("", []),
}


@pytest.mark.parametrize(("source", "ends"), EARLY_FAILURES.values(), ids=EARLY_FAILURES)
def test_a_failure_before_the_first_step_of_a_script_that_does_not_register_is_reported(
    source: str, ends: list[tuple[EndState, int, str]], tmp_path: Path, sidecar: Sidecar
) -> None:
    source = f"import sys, torch\n{source}"
    bare = run(source, tmp_path)
    watched = run(source, tmp_path, **INJECTED, **{SIDECAR: sidecar.path})
    assert sidecar.ends == ends, watched.stderr
    assert (watched.returncode, watched.stderr) == (bare.returncode, bare.stderr)


def test_processes_of_a_fork_server_that_has_loaded_torch_are_ranks(tmp_path: Path, sidecar: Sidecar) -> None:
    start = "mp.set_forkserver_preload(['torch'])\n        " + START.format(method="forkserver")
    ending = "import torch; torch.optim.SGD([torch.zeros(1, requires_grad=True)]).step()"
    source = SPAWNED.format(package="multiprocessing", ending=ending, start=start)
    source = source.replace("import pharoah\n", "pass\n").replace("pharoah.register()", "")
    done = run(source, tmp_path, **INJECTED, **{SIDECAR: sidecar.path})
    assert sidecar.ends == [OK], done.stderr
