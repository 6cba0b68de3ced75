"""The command line of `python -m evaluation privacy`: which sections of the docs it writes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from evaluation import environments, figures
from evaluation.__main__ import parser
from evaluation.figures import Figures
from evaluation.privacy import run
from evaluation.privacy.psi_comparison import costs_of_psi

PAGE = """# The private exchange

<!-- privacy: begin -->
All rows.
<!-- privacy: end -->
<!-- privacy reports: begin -->
<!-- privacy reports: end -->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    (tmp_path / "exchange.md").write_text(PAGE)
    (tmp_path / "index.md").write_text("<!-- summary: begin -->\n<!-- summary: end -->\n")
    return tmp_path / "exchange.md"


def arguments(*words: str) -> argparse.Namespace:
    return parser().parse_args(["privacy", "--docs", *words])


@pytest.mark.parametrize("part", ["probe rows", "other schemes", "no such part"])
def test_one_part_never_takes_the_place_of_all(part: str, page: Path) -> None:
    with pytest.raises(SystemExit, match=f"--part {part} --docs: .* these have: reports, telemetry"):
        run.run(arguments("--part", part))
    assert page.read_text() == PAGE


def test_a_part_with_a_section_of_its_own_may_be_written(page: Path) -> None:
    run.require_section(arguments("--part", "reports"))
    run.require_section(arguments())
    reports = Figures("privacy reports")
    reports.add("slowdown_reported_ratio", 0.9)
    assert run.finished(arguments("--part", "reports"), [Figures("privacy"), reports]) == 0
    assert "All rows.\n" in page.read_text() and "slowdown_reported_ratio" in page.read_text()


def test_a_section_with_tables_only_is_written(page: Path) -> None:
    tables = Figures("privacy")
    tables.table("Ratios, side by side.", ("scheme", "ratio"), [("ours", "1.00")])
    assert run.finished(arguments(), [tables]) == 0
    assert "| ours | 1.00 |" in page.read_text() and "All rows." not in page.read_text()


def test_an_installation_that_failed_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An environment whose package could not be installed has an interpreter all the same."""
    figures.OUTPUT.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=figures.OUTPUT) as folder:
        monkeypatch.setattr(environments, "OUTPUT", Path(folder))
        interpreter = Path(folder) / "psi-environment" / "bin" / "python"
        interpreter.parent.mkdir(parents=True)
        interpreter.symlink_to(sys.executable)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        assert costs_of_psi(10) == []
    assert "No matching distribution found for openmined-psi" in capfd.readouterr().err
