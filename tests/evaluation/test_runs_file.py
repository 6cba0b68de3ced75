"""Runs of others, read from a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from evaluation.learning.runs_file import RunsFileError, read_runs

ROWS = "archetype,failed,context:old driver,context:hot,scale\nresnet,1,1,0,8\nbert,0,0,1,64\nresnet,0,1,1,8\n"
TRUTH = "archetype,context\nresnet,old driver\n"


def written(folder: Path, rows: str = ROWS, truth: str = TRUTH) -> Path:
    path = folder / "runs.csv"
    path.write_text(rows)
    (folder / "runs.csv.truth.csv").write_text(truth)
    return path


def test_runs_and_their_truth_are_read(tmp_path: Path) -> None:
    seen, incompatible = read_runs(written(tmp_path))
    assert (seen.archetypes, seen.contexts) == (("bert", "resnet"), ("old driver", "hot"))
    assert seen.archetype.tolist() == [1, 0, 1] and seen.failed.tolist() == [True, False, False]
    assert seen.in_context.tolist() == [[True, False], [False, True], [True, True]]
    assert seen.confounders["scale"].tolist() == [0, 1, 0]
    assert np.argwhere(incompatible).tolist() == [[1, 0]]


def test_a_column_may_name_the_only_context_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    parquet.write_table(pa.table({"archetype": ["a", "a"], "context": ["x", "y"], "failed": [True, False]}), path)
    (tmp_path / "runs.parquet.truth.csv").write_text("archetype,context\na,x\n")
    seen, incompatible = read_runs(path)
    assert seen.in_context.tolist() == [[True, False], [False, True]] and incompatible.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("rows", "truth", "message"),
    [
        (ROWS.replace("failed", "broken"), TRUTH, "there is no column failed"),
        (ROWS.replace("resnet,1", "resnet,7"), TRUTH, "column failed must hold 0 or 1"),
        (ROWS.replace("bert,0,0,1,64", "bert,0,0,1,"), TRUTH, "column scale is empty in 1 rows"),
        (ROWS, TRUTH.replace("resnet", "vgg"), "is no pair of the runs"),
        (ROWS, "archetype\nresnet\n", "is no pair of the runs"),
        (ROWS + "bert,0\n", TRUTH, "runs.csv"),
    ],
)
def test_a_file_that_holds_no_runs_is_named(tmp_path: Path, rows: str, truth: str, message: str) -> None:
    with pytest.raises(RunsFileError, match=message):
        read_runs(written(tmp_path, rows, truth))
