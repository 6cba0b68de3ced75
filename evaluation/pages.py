"""Sections of pages in docs/ that evaluations write, and the summary of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pharoah_system.files import write_atomically

ROOT = Path(__file__).parents[1]
"""The repository: evaluations may be started in any folder."""
DOCS = ROOT / "docs"
SUMMARY = "summary"
FELL_SHORT = "DOES NOT HOLD"
"""What stands behind a bound that a figure does not meet."""
PRINTED = "printed"
"""In place of a bound: the figure has none."""
_SECTION = re.compile(r"<!-- (?P<name>[^:]+): begin -->\n(?P<text>.*?)<!-- (?P=name): end -->", re.DOTALL)
_FIGURE = re.compile(r"^\| `(?P<key>[^`]+)` \| (?P<value>[^|]*) \| [^|]*\| (?P<bound>[^|]*) \|$", re.MULTILINE)


class Section(NamedTuple):
    """What a page says about one evaluation, or about one part of it."""

    page: Path
    name: str
    bounded: int
    """Figures that were measured and have a bound."""
    fell_short: tuple[str, ...]
    date: str


def find_page(docs: Path, name: str) -> Path:
    """The page that holds the section of an evaluation. Raises SystemExit where none does."""
    for page in sorted(docs.rglob("*.md")):
        if f"<!-- {name}: begin -->" in page.read_text():
            return page
    raise SystemExit(f"{docs}: no page has a section between <!-- {name}: begin --> and <!-- {name}: end -->")


def write_section(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what a page holds between the two markers of an evaluation; everything else stays as it is.

    Raises SystemExit when a marker is missing.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, opened, rest = page.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not opened or not closed:
        raise SystemExit(f"{page}: there is no section between {begin} and {end}")
    write_atomically(page, "\n".join([before + begin, *lines, end + after]), mode=0o644)


def write_summary(docs: Path) -> None:
    """Count, page by page, how many figures meet their bounds, and name those that fall short."""
    by_page: dict[Path, list[Section]] = {}
    for section in _read_sections(docs):
        by_page.setdefault(section.page, []).append(section)
    index = find_page(docs, SUMMARY)
    rows = [_row(index, page, sections) for page, sections in by_page.items()]
    lines = ["| page | figures that meet their bound | fall short | measured |", "|---|---|---|---|", *rows]
    write_section(index, SUMMARY, lines)


def _read_sections(docs: Path) -> Iterator[Section]:
    for page in sorted(docs.rglob("*.md")):
        for found in _SECTION.finditer(page.read_text()):
            figures = [one for one in _FIGURE.finditer(found["text"]) if one["bound"].strip() != PRINTED]
            measured = [one for one in figures if one["value"].strip() != "-"]
            short = tuple(one["key"] for one in measured if FELL_SHORT in one["bound"])
            dates = re.findall(r"\b20\d\d-\d\d-\d\d\b", found["text"])
            if found["name"] != SUMMARY and dates:
                yield Section(page, found["name"], len(measured), short, dates[0])


def _row(index: Path, page: Path, sections: Sequence[Section]) -> str:
    bounded, short = sum(one.bounded for one in sections), [key for one in sections for key in one.fell_short]
    title = page.read_text().partition("\n")[0].lstrip("# ")
    link = Path("..") / page.name if page.parent != index.parent else Path(page.name)
    dates = sorted({one.date for one in sections})
    measured = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    keys = ", ".join(f"`{key}`" for key in short) or "none"
    return f"| [{title}]({link}) | {bounded - len(short)} of {bounded} | {keys} | {measured} |"
