"""Workloads as data files: what the files may hold, and that each is the archetype that its file names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pharoah_archetypes import Fingerprint, catalogue
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.campaign.plan import PlanError, parse_plan
from pharoah_benchmarks.workload_files import FOLDERS, WorkloadFileError, workload_files
from pharoah_protocol.vocabulary import Outcome

DRY = """
import json, sys
import transformers.models.auto.modeling_auto
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.dry_cell import dry_cell
for name in sys.argv[1:]:
    dry, served = dry_cell(Cell(name, name, {})), dry_cell(Cell(name, name, {"task": "serve"}))
    print(json.dumps([name, [dry.fingerprint or dry.reason, served.fingerprint or served.reason]]))
"""
OWN = """
from torch import nn, randn
from pharoah_benchmarks.workloads import Workload
def build(batch, width, activation):
    model = nn.Sequential(nn.Linear(width, width), getattr(nn, activation)())
    return Workload(model, lambda: (randn(batch, width),), lambda net, drawn: net(drawn[0]).square().mean())
"""
BRANCHING = OWN.replace(
    "lambda net, drawn: net(drawn[0]).square().mean())",
    "lambda net, drawn: WAY if (drawn[0] > 0).all() else net(drawn[0]).square().mean())",
)
"""Branches on values, as libraries do that look whether a mask masks anything."""
FILE = 'help = "ours"\nscript = "ours.py"\n[settings]\nbatch = 2\nwidth = 8\n[choices]\nactivation = ["ReLU", "Tanh"]\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a workload of a provider's own."""
    (tmp_path / "ours.py").write_text(OWN)
    (tmp_path / "ours.toml").write_text(FILE)
    monkeypatch.setenv(FOLDERS, str(tmp_path))
    return tmp_path


@pytest.mark.timeout(400)  # it imports transformers, and builds every family twice
def test_each_workload_of_the_catalogue_has_the_archetype_that_its_file_names() -> None:
    wanted = {name: file.archetype for name, file in workload_files().items() if file.archetype}
    assert len(set(wanted.values())) >= 14
    command = [sys.executable, "-W", "ignore", "-c", DRY, *wanted]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = dict(json.loads(line) for line in lines)
    for name, entry in wanted.items():
        trained, served = map(Fingerprint.from_json, found[name])
        assert trained.archetype == catalogue()[entry].skeleton.archetype, name
        assert served.serves and "bwd" not in served.grammar, name


@pytest.mark.parametrize("name", ["gpt", "recommender", "t5", "vit", "whisper"])
def test_each_workload_can_serve(name: str) -> None:
    result = run_trial(Cell("c", name, {"task": "serve", "batch": 2}, steps=2))
    assert (result.outcome, result.detail) == (Outcome.OK, "")


@pytest.mark.usefixtures("folder")
def test_a_provider_adds_a_workload_by_naming_a_script() -> None:
    plan = parse_plan('[[workload]]\nname = "ours"\nvary = { activation = ["ReLU", "Tanh"], width = [8, 16] }')
    assert [run_trial(cell).outcome for cell in plan.cells[::5]] == [Outcome.OK] * 4


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("net(drawn[0]).square().mean()", ""),
        ("net(drawn[0]).softmax(1).square().mean()", "depends on values that a dry run does not have"),
    ],
)
def test_a_workload_that_branches_on_values_is_dry_run_on_all_ways(way: str, reason: str, folder: Path) -> None:
    (folder / "ours.py").write_text(BRANCHING.replace("WAY", way))
    command = [sys.executable, "-W", "ignore", "-c", DRY.replace("import transformers.models.auto.modeling_auto", "")]
    done = subprocess.run([*command, "ours"], capture_output=True, text=True, check=True)
    _, (trained, _) = json.loads(done.stdout)
    if reason:
        assert reason in trained
    else:
        assert Fingerprint.from_json(trained).grammar


def test_a_library_that_is_missing_is_an_outcome(folder: Path) -> None:
    (folder / "ours.py").write_text("import a_library_that_nobody_has\n")
    result = run_trial(Cell("ours", "ours", {}))
    assert result.outcome is Outcome.ERROR and "a_library_that_nobody_has" in result.detail


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("= 3", "ours.toml"),
        (FILE.replace("help", "hlep"), "hlep: unknown key"),
        (FILE.replace("ours.py", "theirs.py"), "script: theirs.py: no such file beside it"),
        (FILE.replace("width = 8", "width = 0"), "settings.width: 0 is not"),
        (FILE.replace('["ReLU", "Tanh"]', "[]"), "choices: expected lists of words"),
        (FILE.replace("[settings]", "[fixed]"), ""),
        ('help = 3\nscript = "ours.py"', "help: expected a text"),
    ],
)
def test_a_file_that_is_no_workload_names_the_key(text: str, named: str, folder: Path) -> None:
    (folder / "broken.toml").write_text(text)
    (folder / "broken.py").write_text(OWN)
    if not named:
        assert workload_files()["broken"].settings == {}
        return
    with pytest.raises(WorkloadFileError, match=named.replace("ours.toml", "broken.toml")):
        workload_files()


@pytest.mark.parametrize("place", ["workloads", "/nowhere/at/all"])
def test_a_folder_that_cells_would_not_find_is_refused(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDERS, place)
    with pytest.raises(PlanError, match=f"{FOLDERS}: {place}: not the absolute path of a folder"):
        parse_plan('[[workload]]\nname = "mlp"')


def test_two_workloads_of_one_name_are_refused(folder: Path) -> None:
    (folder / "gpt.toml").write_text(FILE)
    with pytest.raises(WorkloadFileError, match="there is a workload gpt already"):
        workload_files()
