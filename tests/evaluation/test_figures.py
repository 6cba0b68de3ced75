"""Figures in the docs: what is generated stands between its markers, and nothing else of a page changes."""

from __future__ import annotations

import argparse
import json
import re
from math import inf, nan
from pathlib import Path

import pytest

from evaluation import figures
from evaluation.__main__ import EVALUATIONS, Option, arguments_of, parser
from evaluation.figures import Figures
from evaluation.gpu.run import PARTS as GPU
from evaluation.hardening.run import PARTS as HARDENING
from evaluation.ingest.run import PARTS as INGEST
from evaluation.learning.run import PARTS as LEARNING
from evaluation.loop.run import PARTS as LOOP
from evaluation.pages import DOCS, find_page, write_section
from evaluation.privacy.run import PARTS_WITH_SECTION
from evaluation.survival.run import PARTS as SURVIVAL
from evaluation.validation.run import PARTS as VALIDATION

ROOMS = {
    "gpu": GPU,
    "hardening": HARDENING,
    "ingest": INGEST,
    "learning": LEARNING,
    "survival": SURVIVAL,
    "validation": VALIDATION,
}
"""Evaluations whose parts have a section each."""
SECTIONS = [name for name in EVALUATIONS if name != "demo" and name not in ROOMS]
SECTIONS += [f"loop {part}" for part in LOOP]  # beside the section of the whole loop
SECTIONS += [f"{room} {part}" for room, parts in ROOMS.items() for part in parts]
SECTIONS += [f"privacy {part}" for part in PARTS_WITH_SECTION]
"""Sections of the docs that evaluations write."""


def some_figures(name: str) -> Figures:
    measured = Figures(name)
    measured.ratio("right_ratio", 9, 10, bound=0.8)
    measured.skip("traces_ratio", "needs --data")
    measured.table("Ratios, side by side.", ("model", "ratio"), [("gpt", "1.5")])
    return measured


@pytest.mark.parametrize("name", SECTIONS)
def test_writing_a_section_keeps_everything_outside_its_markers(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(before := find_page(DOCS, name).read_text())
    write_section(page, name, some_figures(name).markdown(f"python -m evaluation {name} --seed 7"))
    after = page.read_text()
    section = re.compile(rf"(?<=<!-- {name}: begin -->).*?(?=<!-- {name}: end -->)", re.DOTALL)
    assert section.sub("", before) == section.sub("", after)
    assert len(section.findall(before)) == len(section.findall(after)) == 1
    assert section.findall(after)[0] != section.findall(before)[0]


def test_writing_a_section_twice_is_writing_it_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Before.\n\n<!-- loop: begin -->\n<!-- loop: end -->\n\nAfter.\n")
    lines = some_figures("loop").markdown("python -m evaluation loop --seed 7")
    write_section(page, "loop", lines)
    once = page.read_text()
    write_section(page, "loop", lines)
    assert page.read_text() == once
    assert once.startswith("Before.\n\n<!-- loop: begin -->\n`python -m evaluation loop --seed 7`")
    assert once.endswith("<!-- loop: end -->\n\nAfter.\n")


def test_a_page_without_the_markers_is_refused_and_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("No section here.\n")
    with pytest.raises(SystemExit, match=r"page\.md: there is no section between <!-- loop: begin -->"):
        write_section(page, "loop", ["x"])
    assert page.read_text() == "No section here.\n"


def test_a_section_names_command_and_machine_and_holds_every_figure() -> None:
    lines = some_figures("loop").markdown("python -m evaluation loop --seed 7 --quick")
    assert re.fullmatch(r"`python -m evaluation loop --seed 7 --quick`, .+ cores, .+, 20\d\d-\d\d-\d\d\.", lines[0])
    assert "| `right_ratio` | 0.9 | [0.60, 0.98] n=10 | >= 0.8 |" in lines
    assert "| `traces_ratio` | - |  | needs --data |" in lines
    assert lines[-5:] == ["Ratios, side by side.", "", "| model | ratio |", "|---|---|", "| gpt | 1.5 |"]


def test_a_skipped_figure_is_no_value_and_breaks_no_bound(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Figures("distributed")
    measured.skip("trace_import_ratio", "needs --data")
    assert measured.write(None) == 0
    assert "trace_import_ratio" not in measured.values
    assert "needs --data" in capsys.readouterr().out


@pytest.mark.parametrize("docs", [True, False])
def test_only_docs_writes_pages(docs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    page = tmp_path / "loop.md"
    page.write_text(before := "# Loop\n<!-- loop: begin -->\n<!-- loop: end -->\n")
    (tmp_path / "index.md").write_text("<!-- summary: begin -->\n<!-- summary: end -->\n")
    arguments = argparse.Namespace(name="loop", seed=7, quick=False, data=None, part=None, out=None, docs=docs)
    assert some_figures("loop").finish(arguments) == 0
    assert (page.read_text() != before) is docs
    assert ("| [Loop](loop.md) | 1 of 1 | none |" in (tmp_path / "index.md").read_text()) is docs


def test_no_default_is_a_path_outside_the_repository() -> None:
    defaults = vars(parser().parse_args(["loop"]))
    assert defaults["data"] is None and defaults["out"] is None


@pytest.mark.parametrize("option", Option)
@pytest.mark.parametrize("name", EVALUATIONS)
def test_an_option_that_an_evaluation_does_not_take_is_refused(
    name: str, option: Option, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise `capture --part cost` would measure everything."""
    words = [name, option.flag, "some"]
    if option in EVALUATIONS[name].takes:
        assert str(getattr(arguments_of(words), option)) == "some"
        return
    with pytest.raises(SystemExit) as raised:
        arguments_of(words)
    assert raised.value.code == 2
    assert f"{option.flag}: {name} does not take it" in capsys.readouterr().err


def test_evaluations_with_parts_take_the_option() -> None:
    for name in {*ROOMS, "loop", "coverage", "distributed", "privacy"}:
        assert Option.PART in EVALUATIONS[name].takes


def test_a_number_that_is_not_finite_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Readers of JSON that keep to its standard refuse NaN and Infinity."""
    measured = some_figures("loop")
    measured.add("revocation_seconds", inf, "<= 60", holds=False)
    measured.ratio("none_ratio", 0, 0)
    measured.details = {"runs": [{"seconds": (1.5, nan)}], "folder": tmp_path}
    assert measured.write(tmp_path / "out.json") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    for text in ((tmp_path / "out.json").read_text(), capsys.readouterr().out.splitlines()[-1]):
        result = json.loads(text, parse_constant=refuse)
        assert result["figures"] == {"right_ratio": 0.9, "revocation_seconds": None, "none_ratio": None}
        assert result["holds"] is False
        assert result.get("details") in (None, {"runs": [{"seconds": [1.5, None]}], "folder": str(tmp_path)})


def test_a_part_with_tables_only_is_a_part() -> None:
    measured = Figures("privacy")
    arguments = argparse.Namespace(name="privacy", seed=1, quick=True, data=None, part="x", out=None, docs=False)
    with pytest.raises(SystemExit, match="--part x: not a part of this evaluation"):
        measured.finish(arguments)
    measured.table("Ratios, side by side.", ("model", "ratio"), [("gpt", "1.5")])
    assert measured.finish(arguments) == 0
