"""The picture of the incompatibility table, and the notebook that draws it from an exported one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_protocol.vocabulary import Rung, Scope, Severity
from pharoah_provider.listings._learned_rows import _render
from pharoah_provider.pictures.heatmap import MAX_LINES, NothingToDrawError, draw, figure_of, heatmap
from pharoah_serving.errors import ProviderError
from tests.learning.test_row_evidence import campaign

NOTEBOOK = Path(__file__).parents[2] / "examples" / "learned_table.ipynb"
NODES = {"small": "n3+n4", "large": "n1+n2"}
LEARNED = learn_incompatibilities(campaign())
ROWS = [{"release": 3, "nodes": NODES.get(row.group_id, ""), **_render(row, revoked=False)} for row in LEARNED]


def texts(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_a_cell_counts_the_failures_of_a_job_in_a_context() -> None:
    picture = heatmap(ROWS)
    assert picture.columns == ("n1+n2", "n3+n4") and len(picture.lines) == 4 and picture.left_out == 0
    failing = [(line, column) for (line, column), row in picture.cells.items() if row["failures"]]
    assert failing == [("gpt attention=math length=1024", "n3+n4")]
    shown = texts(figure_of(picture))
    assert shown.count("memory\n12 of 12") == 1 and shown.count("0 of 12") == 7


def test_lines_are_in_the_order_of_their_numbers() -> None:
    assert [line.rpartition("=")[2] for line in heatmap(ROWS).lines] == ["128", "1024", "128", "1024"]


def test_what_nobody_has_tried_is_not_shown_as_working() -> None:
    some = [row for row in ROWS if (row["nodes"], row["title"]) != ("n1+n2", "gpt attention=math length=128")]
    assert texts(figure_of(heatmap(some))).count("not tried") == 1


def test_a_revoked_row_has_no_colour_of_a_severity() -> None:
    revoked = [{**row, "severity": "revoked"} if row["severity"] == Severity.BLOCK else row for row in ROWS]
    assert texts(figure_of(heatmap(revoked))).count("revoked") == 1


def test_versions_are_named_where_they_differ() -> None:
    later = [replace(one, fingerprint=one.fingerprint.replace("2.13.0", "2.14.0")) for one in campaign()]
    rows = learn_incompatibilities([*campaign(), *later])
    lines = heatmap({"release": 1, "nodes": "", **_render(row, revoked=False)} for row in rows).lines
    assert len(lines) == 8 and {line.split()[-1] for line in lines} == {"torch=2.13.0", "torch=2.14.0"}
    assert not any("torch" in line for line in heatmap(ROWS).lines)


def test_of_many_jobs_those_without_a_failure_are_left_out() -> None:
    exact = next(row for row in ROWS if row["rung"] == Rung.EXACT and row["scope"] == Scope.SERVER)
    many = [{**exact, "title": f"job {number}"} for number in range(MAX_LINES + 5)]
    many[7] = {**many[7], "failures": 2, "severity": "warn", "outcome": "nan"}
    picture = heatmap(many)
    assert picture.lines == ("job 7",) and picture.left_out == MAX_LINES + 4


def test_nothing_to_draw_and_a_wrong_format_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NothingToDrawError, match="no row of scope server and rung exact"):
        heatmap([])
    with pytest.raises(ProviderError, match="nothing"):
        draw(heatmap(ROWS), tmp_path / "picture.nothing")
    with pytest.raises(ProviderError, match="by the ending of their name"):
        draw(heatmap(ROWS), tmp_path / "picture")
    assert not list(tmp_path.iterdir()), "no file of another name"


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ProviderError, match=r"pharoah\[draw\]"):
        figure_of(heatmap(ROWS))


def test_the_cells_of_the_notebook_run(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if "outputs" in cell)
    (tmp_path / "table.json").write_text(json.dumps(ROWS))
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(ROWS)} rows of release 3" in done.stdout and "memory" in done.stdout
