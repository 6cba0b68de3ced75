"""Dry runs for tests, in forks of one process that has imported torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pharoah import dryrun
from pharoah.cli import _common
from pharoah.dryrun import DryRun
from pharoah_archetypes import Fingerprint
from tests.harness.torch_server import TorchServer

DryRunner = Callable[..., DryRun]
TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
STEP = "model(torch.randn(4, 8)).pow(2).mean().backward()\noptimizer.step()\n"


@pytest.fixture(scope="session")
def torch_server() -> Iterator[TorchServer]:
    with TorchServer() as server:
        yield server


@pytest.fixture(scope="session")
def dry_run(torch_server: TorchServer) -> DryRunner:
    """`pharoah.dryrun.dry_run` of any command line."""
    return functools.partial(dryrun.dry_run, start=torch_server.start)


@pytest.fixture
def quick_commands(dry_run: DryRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of `pharoah`, in the test's own process, dry-run in forks, too."""
    monkeypatch.setattr(_common, "dry_run", dry_run)


@pytest.fixture
def dry_run_script(dry_run: DryRunner, tmp_path: Path) -> DryRunner:
    """Dry-run the source of a script, with arguments of `dry_run` by name."""

    def run(source: str, *arguments: str, seconds: float = 60.0, **options: object) -> DryRun:
        script = tmp_path / "train.py"
        script.write_text(source)
        return dry_run([sys.executable, str(script), *arguments], seconds, **options)

    return run


@pytest.fixture
def dry(dry_run_script: DryRunner) -> Callable[..., Fingerprint]:
    """The fingerprint of a script."""
    return lambda source, **options: dry_run_script(source, **options).fingerprint
