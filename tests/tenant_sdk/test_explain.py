from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PERCEPTRON = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.arange(4)).backward()
optimizer.step()
"""


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
