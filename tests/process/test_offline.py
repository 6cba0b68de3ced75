"""`PHAROAH_MODE=offline`: nobody is called, and everything that this machine does by itself goes on."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pharoah_serving.keys import make_keys

GPU = "NVIDIA H100 80GB HBM3"
TRAIN = """
import os
import torch
torch.manual_seed(0)
model = torch.nn.Linear({width}, {width}, device={device!r})
optimizer = torch.optim.Adam(model.parameters())
for _ in range(8):
    model(torch.randn(4, {width}, device={device!r})).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", "PHAROAH_SIDECAR" in os.environ)
"""


def pharoah(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pharoah", *arguments]
    environ = {**os.environ, "PHAROAH_MODE": "offline", **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environ, stdin=subprocess.DEVNULL)


@pytest.fixture
def small(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(TRAIN.format(width=8, device="cpu"))
    return str(path)


def test_a_job_is_checked_watched_and_recorded(tmp_path: Path, small: str) -> None:
    state, verdict = {"PHAROAH_STATE_DIR": str(tmp_path / "state")}, tmp_path / "verdict.json"
    done = pharoah("run", "--verdict-file", str(verdict), "--", sys.executable, small, **state)
    assert (done.returncode, done.stdout) == (0, "trained True\n"), done.stderr
    written = json.loads(verdict.read_text())
    assert written["status"] == "unknown" and written["reason"] == "mode=offline: the provider is not asked"
    [record] = [json.loads(path.read_text()) for path in (tmp_path / "state").rglob("*.json")]
    assert record["run"]["steps"] > 0, "the sidecar has counted the steps of the job"


@pytest.mark.parametrize(("option", "code"), [("--require-online", 12), ("--strict", 11)])
def test_a_job_that_needs_an_answer_does_not_start(small: str, option: str, code: int) -> None:
    done = pharoah("run", option, "--", sys.executable, small)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr


def on_gpu(folder: Path, width: int) -> str:
    path = folder / "on_gpu.py"
    path.write_text(TRAIN.format(width=width, device="cuda"))
    return str(path)


def test_a_job_that_does_not_fit_does_not_start(tmp_path: Path) -> None:
    done = pharoah("run", "--gate", "block", "--", sys.executable, on_gpu(tmp_path, 80_000), PHAROAH_GPUS=GPU)
    assert done.returncode == 10, done.stderr
    assert "does not fit into memory" in " ".join(done.stderr.split())


def test_a_check_says_whether_a_job_fits(tmp_path: Path) -> None:
    done = pharoah("check", "--", sys.executable, on_gpu(tmp_path, 8), PHAROAH_GPUS=GPU)
    assert done.returncode == 0, done.stderr
    assert "mode=offline" in done.stdout and "fits into memory" in done.stdout


@pytest.fixture
def provider() -> Iterator[socket.socket]:
    """A socket at which somebody would be noticed who connects."""
    with (
        tempfile.TemporaryDirectory() as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
    ):
        listener.bind(f"{folder}/p.sock")
        listener.listen()
        listener.setblocking(False)
        yield listener


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_no_command_calls_the_provider(tmp_path: Path, provider: socket.socket, mode: str) -> None:
    (tmp_path / "provider.pub").write_text(make_keys(tmp_path / "keys").public.hex())
    (tmp_path / "token").write_text("ab" * 32)
    (tmp_path / "token").chmod(0o600)
    access = {
        "PHAROAH_ENDPOINT": f"unix:{provider.getsockname()}",
        "PHAROAH_TOKEN_FILE": str(tmp_path / "token"),
        "PHAROAH_PROVIDER_KEY_FILE": str(tmp_path / "provider.pub"),
        "PHAROAH_TIMEOUT_S": "1",
    }
    done = [pharoah(command, PHAROAH_MODE=mode, **access) for command in ("audit", "doctor")]
    assert ("mode=offline" in done[0].stderr and "mode=offline" in done[1].stdout) is (mode == "offline")
    if mode == "offline":
        with pytest.raises(BlockingIOError):
            provider.accept()
    else:
        provider.accept()[0].close()
