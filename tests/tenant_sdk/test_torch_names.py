"""What a release of torch lacks is absent, and never an error: the import and a dry run with each name taken away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

from pharoah import torch_names, torch_releases
from pharoah_archetypes.documented.releases import read_release
from tests.harness.torch_server import TorchServer

DRY_RUNS = """
import json, os, sys
import torch, torch._dynamo, torch.distributed.fsdp, torch.distributed.optim, torch.fx.experimental.symbolic_shapes
from torch import nn


def train(distributed):
    if distributed:
        torch.distributed.init_process_group("gloo", rank=0, world_size=2)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 16), layer, nn.Linear(16, 2))
    if distributed:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.utils.data.TensorDataset(torch.randn(32, 6, 8), torch.randint(2, (32, 6)))
    for data, labels in torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True, num_workers=2):
        with torch.no_grad():
            model(data)
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(data).flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def outcome(taken, distributed):
    import importlib, pkgutil
    from pharoah import torch_names

    for name in taken:
        known = torch_names.NAMES[name]
        torch_names.NAMES[name] = known._replace(paths=tuple(f"{path}_taken" for path in known.paths))

    import pharoah.capture, pharoah.dryrun, pharoah.replay
    from pharoah.dryrun.exploration import Explorer
    from pharoah.dryrun.fake_tensors import fake_step
    from pharoah.dryrun.step_boundary import Finished

    for package in (pharoah.capture, pharoah.dryrun, pharoah.replay):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    found, reasons = [], []
    explorer = Explorer(reasons.append, reasons.append, 1e9)
    try:
        with fake_step(lambda result, _: found.append(result.fingerprint), explorer):
            train(distributed)
    except Finished:
        pass
    except Exception as error:
        reasons.append(f"{type(error).__name__}: {error}")
    return [found[-1].archetype if found else "", reasons, torch_names.what_is_lost()]


for taken, distributed in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.write(write, json.dumps(outcome(taken, distributed)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        print(answer.read() or "null")
    os.wait()
"""
"""Each in a process of its own, forked from one that has imported torch, and nothing of ours."""
NEEDED = [name for name, wanted in torch_names.NAMES.items() if wanted.needed]
GROUPS = ["fake_process_group", "c10d"]
"""What a dry run of a distributed job stands on."""
OTHERS = [name for name in torch_names.NAMES if name not in (*NEEDED, *GROUPS)]
PARTS = 5
"""Tests among which the names are divided: all dry runs in one would take longer than a test may on a busy machine."""


class Outcome(NamedTuple):
    """How a dry run ended."""

    archetype: str
    reasons: list[str]
    lost: list[str]


def outcomes(server: TorchServer, *runs: tuple[list[str], bool]) -> list[Outcome]:
    """How dry runs end with these names taken away, of one process or of two ranks."""
    printed = server.run_code(DRY_RUNS, json.dumps(runs)).splitlines()
    return [Outcome(*json.loads(line)) for line in printed]


@pytest.mark.parametrize("part", range(PARTS))
def test_a_dry_run_works_with_each_name_taken_away(part: int, torch_server: TorchServer) -> None:
    names = OTHERS[part::PARTS]
    alone = [([], False), *(([name], "distributed" in str(torch_names.NAMES[name].paths)) for name in names)]
    with_all, *found = outcomes(torch_server, *alone)
    assert with_all.archetype
    for name, one in zip(names, found, strict=True):
        assert one.archetype and not one.reasons, name
        if not torch_names.NAMES[name].lost:
            assert not one.lost, name


def test_a_dry_run_works_with_all_names_taken_away_together(torch_server: TorchServer) -> None:
    for one in outcomes(torch_server, (OTHERS, False), (OTHERS, True)):
        assert one.archetype and not one.reasons
        assert one.lost


def test_without_what_a_dry_run_stands_on_the_reason_names_it(torch_server: TorchServer) -> None:
    for name, one in zip(NEEDED, outcomes(torch_server, *(([name], False) for name in NEEDED)), strict=True):
        assert not one.archetype
        assert f"{torch_names.NAMES[name].paths[0]}_taken" in one.reasons[0]


def test_without_a_group_of_one_rank_the_reason_says_so(torch_server: TorchServer) -> None:
    for one in outcomes(torch_server, *(([name], True) for name in GROUPS)):
        assert not one.archetype
        assert "no process group for one rank" in one.reasons[0]


def test_the_table_says_which_releases_have_a_name(torch_server: TorchServer) -> None:
    code = """
import json, torch, torch.distributed
from pharoah import torch_names
found = {name: torch_names._first(known.paths)[0] for name, known in torch_names.NAMES.items()}
print(json.dumps([torch.__version__, torch.version.cuda is not None, found]))
"""
    release, for_gpus, found = json.loads(torch_server.run_code(code))
    numbers = read_release(release).numbers[:2]
    for name, known in torch_names.NAMES.items():
        since = read_release(known.since or torch_releases.OLDEST_TORCH).numbers
        until = read_release(known.until or torch_releases.NEWEST_TESTED_TORCH).numbers
        if since <= numbers <= until and (for_gpus or name not in ("cuda_arch_flags", "dump_of_nccl")):
            assert found[name], name
        elif numbers < since or numbers > until:
            assert not found[name], name


def test_the_oldest_release_is_the_floor_of_the_package() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert f"torch>={torch_releases.OLDEST_TORCH}" in project["optional-dependencies"]["torch"]


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("2.3.1", "not supported"), ("2.3.1+cu118", "not supported"), ("1.13.1", "not supported"),
        ("2.4.0", ""), ("2.4.1+cu121", ""), ("2.9.1", ""), ("2.15.0+rocm7.1", ""), ("2.15.2", ""),
        ("2.16.0", "not tested"), ("2.16.0.dev20261120+cpu", "not tested"), ("3.0.0", "not tested"),
        ("2.15.0a0+git1b2c3d4", ""), ("main", "not a release"),
    ],
)  # fmt: skip
def test_a_release_outside_the_promise_is_named(release: str, said: str) -> None:
    doubt = torch_releases.outside_promise(release)
    assert (said in doubt and release in doubt) if said else not doubt


@pytest.mark.parametrize("release", ["2.3.1", "99.0.0"])
def test_doctor_names_a_release_outside_the_promise_where_a_job_finds_it(release: str, tmp_path: Path) -> None:
    installed = tmp_path / f"torch-{release}.dist-info" / "METADATA"
    installed.parent.mkdir()
    installed.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {release}\n")
    variables = {**os.environ, "PYTHONPATH": str(tmp_path), "PHAROAH_STATE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "pharoah", "doctor", "-o", "json"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    [row] = [row for row in json.loads(done.stdout) if row["check"] == "torch"]
    assert row["result"] == "FAIL" and release in row["detail"]


def test_a_reason_names_a_release_outside_the_promise(torch_server: TorchServer) -> None:
    code = """
import json, os, torch
torch.__version__ = "2.3.1+cu118"
from pharoah.dryrun.reports import Report
read, write = os.pipe()
Report(write).reason("no step")
print(json.loads(os.read(read, 4096))[1])
"""
    said = torch_server.run_code(code).decode()
    assert said.startswith("no step; torch 2.3.1+cu118 is not supported")
