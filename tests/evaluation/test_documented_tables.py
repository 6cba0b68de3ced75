"""Tables of documented compatibility become relations, whatever rows they have."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from evaluation.figures import Figures
from evaluation.learning.documented import folder_of, measure
from evaluation.learning.documented_splits import ask_splits
from evaluation.learning.documented_tables import relations_of
from pharoah_archetypes.documented import (
    Compatibility,
    Consequence,
    Inference,
    Knowledge,
    Relation,
    Statement,
    documents,
)
from pharoah_archetypes.documented.knowledge import answer
from pharoah_archetypes.documented.releases import read_release, read_releases

DRIVERS = """cuda_toolkit,min_driver_linux_x86_64,minor_compat_upper,note
12.x,525,580,
11.x,450,525,
11.4 U1,470.57.02,,
10.2.89,440.33,,
"""
WHEELS = """torch,cuda,torchvision,torchaudio,python
2.0.1,11.7,0.15.2,2.0.2,3.10
2.0.1+cu118,11.8,0.15.2,2.0.2,3.11
2.1.0+cpu,,0.16.0+cpu,2.1.0,3.10
2.1.0+cu118,11.8,0.16.0+cu118,2.1.0,3.11
2.1.0+cu121,12.1,0.16.0+cu121,2.1.0,3.11
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "compat_facts"
    folder.mkdir()
    (folder / "cuda_min_driver.csv").write_text(DRIVERS)
    (folder / "torch_cuda_python.csv").write_text(WHEELS)
    return tmp_path


def says(folder: Path, table: str, subject: str, release: str, about: str, value: str) -> Compatibility:
    (relation,) = [one for one in relations_of(folder)[table] if (one.subject, one.about) == (subject, about)]
    return answer(relation, {subject: release, about: value}).compatibility


@pytest.mark.parametrize(
    ("toolkit", "driver", "expected"),
    [
        ("11.4.1", "470.57.02", "compatible"),
        ("11.4.1", "455.32", "compatible"),  # the row about all of CUDA 11
        ("11.4.1", "440.33", "incompatible"),
        ("12.6", "520.61.05", "incompatible"),
        ("10.2.89", "440.32", "incompatible"),
    ],
)
def test_the_family_of_a_toolkit_says_which_driver_is_too_old(
    tables: Path, toolkit: str, driver: str, expected: str
) -> None:
    assert says(tables / "compat_facts", "cuda_min_driver", "cuda", toolkit, "driver", driver) == expected


@pytest.mark.parametrize(
    ("about", "value", "expected"),
    [
        ("cuda", "11.8", "compatible"),
        ("cuda", "12.1", "incompatible"),
        ("torchvision", "0.15.2", "compatible"),
        ("torchvision", "0.15.1", "unknown"),
        ("torchvision", "0.16.0", "incompatible"),
        ("python", "3.9", "unknown"),  # the table begins at 3.10
        ("python", "3.12", "incompatible"),
    ],
)
def test_all_files_of_a_release_count_together(tables: Path, about: str, value: str, expected: str) -> None:
    assert says(tables / "compat_facts", "torch_cuda_python", "torch", "2.0.1", about, value) == expected


def test_rows_that_cannot_be_read_are_left_out_and_named(tables: Path) -> None:
    folder = tables / "compat_facts"
    (folder / "cuda_min_driver.csv").write_text(DRIVERS + "twelve,525,,\n13.x,,,\n10.1\n")
    (folder / "pytorch_release_matrix.csv").write_text(
        "torch,python,stable_cuda,experimental_cuda,stable_rocm\n"
        '2.5,">=3.9,<=3.12, (3.13 experimental)",11.8;12.1;12.4,,6.2\n'
        '2.13,">=3.10, <=(3.15, 3.15t experimental)",12.6;13.0,13.2,7.2\n'
    )
    left_out: list[str] = []
    found = relations_of(folder, left_out)
    assert len(left_out) == 3 and "'twelve' is not a version number" in left_out[0]
    assert len(found["cuda_min_driver"][0].statements) == 4
    matrix = ("pytorch_release_matrix", "torch")
    assert says(folder, *matrix, "2.5.1", "python", "3.13") == "unknown"
    assert says(folder, *matrix, "2.13.0", "python", "3.16") == "incompatible"
    assert says(folder, *matrix, "2.13.0", "cuda", "13.2") == "compatible"


@pytest.fixture
def few_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two relations in place of all that come with Pharoah, because each of them is asked everything."""
    few = Knowledge([documents().relations[name] for name in ("cuda_driver", "torch_glibc")])
    monkeypatch.setattr("evaluation.learning.documented.documents", lambda: few)


@pytest.mark.usefixtures("few_of_our_own")
def test_the_tables_are_asked_about_what_was_taken_out(tables: Path) -> None:
    figures = Figures("documented")
    measure(figures, argparse.Namespace(data=tables, seed=3, quick=True))
    for key in ("documented_heldout_wrong", "documented_own_wrong", "documented_wrong"):
        assert figures.values[key] == 0, key
    assert 0 < figures.values["documented_own_right_ratio"] <= 1


@pytest.mark.usefixtures("few_of_our_own")
def test_without_tables_only_our_own_data_are_measured(tmp_path: Path) -> None:
    assert folder_of(None) is None and folder_of(tmp_path) is None
    figures = Figures("documented")
    measure(figures, argparse.Namespace(data=None, seed=1, quick=True))
    assert figures.values["documented_wrong"] == 0 and "documented_heldout_wrong" not in figures.values
    assert any("needs --data" in row.bound for row in figures.rows)


def test_a_split_finds_the_answer_that_two_neighbours_give_and_that_is_wrong() -> None:
    """A build that vanishes for one release: read as a window, it is inferred where it is not."""
    rows = {"2.8": "12.8 | 12.9", "2.9": "12.8 | 13.0", "2.10": "12.8 | 12.9 | 13.0"}
    statements = tuple(Statement(read_release(one), read_releases(allows)) for one, allows in rows.items())
    wrong = {}
    for rule in (Inference.WINDOW, Inference.LIST):
        builds = Relation("b", "torch", "cuda", rule, Consequence.FAILS, "{release} {value}", "", statements)
        wrong[rule] = ask_splits([builds], seed=1, splits=40).ours.wrong
    assert wrong[Inference.WINDOW] > 0 and wrong[Inference.LIST] == 0
