from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pharoah.cli.main import main
from pharoah_protocol.tables.query import BATCH_ITEMS, QUESTION_ITEMS

PERCEPTRON = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.arange(4)).backward()
optimizer.step()
"""


DOCS = Path(__file__).parents[2] / "docs"


def explain(folder: Path, source: str, *options: str) -> str:
    (folder / "train.py").write_text(source)
    command = [sys.executable, "-m", "pharoah", "explain", *options, "--", sys.executable, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_known_archetype_is_named_and_drawn(tmp_path: Path) -> None:
    said = explain(tmp_path, PERCEPTRON, "--draw", "it.svg")
    assert "is          mlp" in said
    assert all(len(line) <= 80 for line in said.splitlines())
    picture = (tmp_path / "it.svg").read_text()
    assert picture.startswith("<?xml") and "gemm" in picture


def test_an_unknown_one_is_compared_with_its_neighbours(tmp_path: Path) -> None:
    said = explain(tmp_path, PERCEPTRON.replace("torch.nn.ReLU()", "torch.nn.ReLU(), torch.nn.LayerNorm(8)"))
    assert "near" in said and "with: + norm=layer" in said


def test_it_says_how_many_elements_of_a_question_are_for_the_job_as_the_documents_do(tmp_path: Path) -> None:
    said = explain(tmp_path, PERCEPTRON)
    assert f"{BATCH_ITEMS} blinded elements" in said and f"{QUESTION_ITEMS} of them are for your job" in said
    assert f"Every question has {QUESTION_ITEMS} items" in (DOCS / "exchange.md").read_text()
    assert f"{QUESTION_ITEMS} of them are for your job" in (DOCS / "tenant" / "privacy.md").read_text()


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["explain", "--draw", str(tmp_path / "it.svg"), "--", "nothing-that-could-be-dry-run"]) == 2
    assert "pharoah[draw]" in capsys.readouterr().err


@pytest.mark.usefixtures("quick_commands")
def test_as_json_it_has_the_fingerprint_and_the_messages_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(PERCEPTRON)
    job = ["--", sys.executable, str(tmp_path / "train.py")]
    assert main(["explain", "-o", "json", *job]) == 0
    [fingerprint] = capsys.readouterr().out.splitlines()
    assert main(["explain", "--payload", "-o", "json", *job]) == 0
    first, *messages = capsys.readouterr().out.splitlines()
    assert json.loads(first)["grammar"] == json.loads(fingerprint)["grammar"]
    assert messages and all(json.loads(message).keys() >= {"call", "bytes"} for message in messages)
