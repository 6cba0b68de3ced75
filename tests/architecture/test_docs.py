"""The docs name what exists: links, paths, packages, commands, evaluations, decisions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from evaluation.__main__ import EVALUATIONS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("archetypes", "auditor", "benchmarks", "docs", "evaluation", "examples", "proto", "provider_service")
FOLDERS += ("tenant_sdk", "tests")
COMMANDS = {
    "pharoah": "pharoah",
    "pharoah-provider": "pharoah_provider.cli",
    "pharoah-agent": "pharoah_provider.agent.cli",
    "pharoah-auditor": "pharoah_auditor.cli",
}
"""Command to the module that runs it."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of_all_pages() -> str:
    return "\n".join(path.read_text() for path in PAGES if path.name != "CHANGELOG.md")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    missing = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_paths_in_code_style_exist(page: Path) -> None:
    quoted = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*[\w/])(?::\w+)?`", page.read_text())
    missing = [path for path in quoted if not (ROOT / path).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_evaluations_and_decisions_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    evaluations = set(re.findall(r"python -m evaluation ([a-z_]+)", text))
    assert evaluations <= EVALUATIONS.keys()
    decisions = {int(number) for number in re.findall(r"\bADR (\d+)\b", text)}
    assert decisions <= {int(path.name[:4]) for path in (ROOT / "docs" / "adr").glob("*.md")}


def test_the_readme_lists_every_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("|")]
    missing = [package for package in packages if not any(f"`{Path(package).name}`" in row for row in rows)]
    assert not missing


def test_every_evaluation_is_described() -> None:
    missing = [name for name in EVALUATIONS if f"evaluation {name}" not in text_of_all_pages() and name != "demo"]
    assert not missing


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", COMMANDS[command], "--help"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    section = done.stdout.partition("positional arguments:")[2].partition("\n\n")[0]
    verbs = re.findall(r"^    ([a-z][a-z-]+)(?:\s|$)", section, re.MULTILINE)
    assert verbs
    mentioned = [rf"{command} {{}}\b", r"`{}\b"]
    missing = [verb for verb in verbs if not any(re.search(m.format(verb), text_of_all_pages()) for m in mentioned)]
    assert not missing, f"{command}: the docs do not mention {missing}"
