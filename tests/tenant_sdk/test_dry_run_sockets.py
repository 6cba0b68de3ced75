"""Unix sockets in a dry run: those of its own processes can be reached, and those of other programs cannot."""

from __future__ import annotations

import socket

import pytest

from pharoah._errors import UnknownReason
from tests.harness.sockets import socket_folder
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner
from tests.tenant_sdk.test_dry_run import sandbox_is_allowed

MANAGER = """
import multiprocessing
shared = multiprocessing.Manager().dict(rows=3)
shared["rows"] += 1
assert shared.copy() == {"rows": 4}
"""
SERVER = """
import os, socket, tempfile
os.chdir(tempfile.mkdtemp())
read_end, write_end = os.pipe()
if os.fork() == 0:
    server = socket.socket(socket.AF_UNIX)
    server.bind(BOUND)
    server.listen()
    os.write(write_end, b"1")
    server.accept()[0].sendall(b"hello")
    os._exit(0)
os.read(read_end, 1)
client = socket.socket(socket.AF_UNIX)
client.connect(CONNECTED)
assert client.recv(5) == b"hello"
"""


@pytest.fixture(autouse=True)
def _with_sandbox() -> None:
    if not sandbox_is_allowed():
        pytest.skip("this machine allows no namespaces")


def test_a_manager_of_multiprocessing_is_another_process_of_the_dry_run(dry_run_script: DryRunner) -> None:
    dry = dry_run_script(MANAGER + TRAIN + STEP)
    assert dry.fingerprint.archetype == dry_run_script(TRAIN + STEP).fingerprint.archetype


@pytest.mark.parametrize(
    ("bound", "connected"),
    [
        ("os.path.abspath('server')", "os.path.abspath('server')"),
        ("os.path.abspath('server')", "os.fsencode('server')"),
        ("'server'", "'./server'"),
        ("'server'", "bytearray(b'server')"),
        ("'\\0pharoah'", "b'\\0pharoah'"),
        ("b'\\0ph\\0roah'", "'\\0ph\\0roah'"),
    ],
)
def test_a_socket_that_another_process_of_the_dry_run_has_bound_can_be_reached(
    dry_run_script: DryRunner, bound: str, connected: str
) -> None:
    source = SERVER.replace("BOUND", bound).replace("CONNECTED", connected)
    assert dry_run_script(source + TRAIN + STEP).fingerprint.grammar.startswith("fwd: gemm act gemm")


def test_a_socket_of_another_program_cannot_be_reached_and_is_named(dry_run_script: DryRunner) -> None:
    with socket_folder() as folder, socket.socket(socket.AF_UNIX) as server:
        path = str(folder / "server")
        server.bind(path)
        server.listen()
        for address in (path, "\0pharoah of another program"):
            source = f"import socket\nsocket.socket(socket.AF_UNIX).connect({address!r})\n"
            with pytest.raises(UnknownReason, match="side effect before the first step: connects to"):
                dry_run_script(source + TRAIN + STEP)
