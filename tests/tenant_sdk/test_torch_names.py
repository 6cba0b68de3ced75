"""What a release of torch lacks is absent, and never an error: the import and a dry run with each name taken away."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from pharoah import torch_names, torch_releases
from pharoah.cli.main import main
from pharoah_archetypes.documented.releases import read_release
from tests.harness.torch_server import TorchServer

DRY_RUN = """
import importlib, json, pkgutil, sys, time
from pharoah import torch_names

for name in sys.argv[1].split():
    known = torch_names.NAMES[name]
    torch_names.NAMES[name] = known._replace(paths=tuple(f"{path}_taken" for path in known.paths))

import pharoah.capture, pharoah.dryrun, pharoah.replay
for package in (pharoah.capture, pharoah.dryrun, pharoah.replay):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")

import torch
from torch import nn
from pharoah._errors import UnknownReason
from pharoah.dryrun.exploration import Explorer
from pharoah.dryrun.fake_process_group import OtherRank
from pharoah.dryrun.fake_tensors import fake_step
from pharoah.dryrun.step_boundary import Finished

def train():
    if "distributed" in sys.argv[2]:
        torch.distributed.init_process_group("gloo", rank=0, world_size=2)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(8, 16), layer, nn.Linear(16, 2))
    if "distributed" in sys.argv[2]:
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

found, reasons = [], []
try:
    with fake_step(lambda result, _: found.append(result.fingerprint), Explorer(reasons.append, reasons.append, 1e9)):
        train()
except (UnknownReason, OtherRank) as ended:
    reasons.append(str(ended))
except Finished:
    pass
print(json.dumps([found[-1].archetype if found else "", reasons, torch_names.what_is_lost()]))
"""
NEEDED = [name for name, wanted in torch_names.NAMES.items() if wanted.needed]
OTHERS = [name for name in torch_names.NAMES if name not in NEEDED]
GROUPS = ["fake_process_group", "c10d"]
"""What a dry run of a distributed job stands on."""


def outcome(server: TorchServer, *taken: str, kind: str = "single") -> tuple[str, list[str], list[str]]:
    """The archetype of a dry run with these names taken away, why there is none, and what is lost."""
    archetype, reasons, lost = json.loads(server.run_code(DRY_RUN, " ".join(taken), kind))
    return archetype, reasons, lost


@pytest.fixture(scope="module")
def archetype_with_all(torch_server: TorchServer) -> str:
    """Of a dry run with all names."""
    return outcome(torch_server)[0]


@pytest.mark.parametrize("name", OTHERS)
def test_a_dry_run_works_with_each_name_taken_away(
    torch_server: TorchServer, archetype_with_all: str, name: str
) -> None:
    archetype, reasons, lost = outcome(torch_server, name)
    assert not reasons
    assert archetype == archetype_with_all or lost


@pytest.mark.parametrize("kind", ["single", "distributed"])
def test_a_dry_run_works_with_all_names_taken_away_together(torch_server: TorchServer, kind: str) -> None:
    archetype, reasons, lost = outcome(torch_server, *(name for name in OTHERS if name not in GROUPS), kind=kind)
    assert archetype and not reasons
    assert lost


@pytest.mark.parametrize("name", GROUPS)
def test_without_a_group_of_one_rank_the_reason_says_so(torch_server: TorchServer, name: str) -> None:
    archetype, reasons, _ = outcome(torch_server, name, kind="distributed")
    assert not archetype
    assert "no process group for one rank" in reasons[0]


@pytest.mark.parametrize("name", NEEDED)
def test_without_what_a_dry_run_stands_on_the_reason_names_it(torch_server: TorchServer, name: str) -> None:
    archetype, reasons, _ = outcome(torch_server, name)
    assert not archetype
    assert f"{torch_names.NAMES[name].paths[0]}_taken" in reasons[0]


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
def test_doctor_names_a_release_outside_the_promise(
    release: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    installed = tmp_path / f"torch-{release}.dist-info" / "METADATA"
    installed.parent.mkdir()
    installed.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {release}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    main(["doctor", "-o", "json"])
    [row] = [row for row in json.loads(capsys.readouterr().out) if row["check"] == "torch"]
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
