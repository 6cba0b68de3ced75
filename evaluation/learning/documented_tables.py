"""Tables of documented compatibility as relations: the rows of CSV files take the place of our own data files."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pharoah_archetypes.documented import Consequence, Inference, Relation, Statement, documents
from pharoah_archetypes.documented.device_code import read_device_code
from pharoah_archetypes.documented.releases import Releases, read_release, read_releases

Row = Mapping[str, str]
FIRST_MINOR_COMPATIBLE = 11
"""The CUDA major number from which on the driver of a toolkit is enough and not the least one (NVIDIA CUDA
Compatibility, Minor Version Compatibility)."""
_UPDATE = re.compile(r"(\d+\.\d+) (?:U|Update )(\d+)")
_LIST = re.compile(r"[,;\s]+")


def relations_of(folder: Path, left_out: list[str] | None = None) -> dict[str, list[Relation]]:
    """Table to the relations in it, of all tables that are in the folder.

    Rows that cannot be read are left out, and `left_out` gets what is wrong with each.
    """
    reader = _Reader([] if left_out is None else left_out)
    tables = {
        "cuda_min_driver": reader.drivers,
        "pytorch_release_matrix": reader.matrix,
        "pytorch_arch_lists": reader.architectures,
        "fbgemm_releases": reader.fbgemm,
        "torch_cuda_python": reader.wheels,
    }
    return {
        name: list(read(list(_rows(folder / f"{name}.csv"))))
        for name, read in tables.items()
        if (folder / f"{name}.csv").is_file()
    }


def _rows(file: Path) -> Iterator[Row]:
    with file.open(newline="") as lines:
        for row in csv.DictReader(lines):
            yield {column: cell or "" for column, cell in row.items() if isinstance(cell, str | None)}


class _Reader:
    """Makes relations from the rows of tables."""

    def __init__(self, left_out: list[str]) -> None:
        self.left_out = left_out

    def drivers(self, rows: list[Row]) -> Iterator[Relation]:
        def statement(row: Row) -> Statement:
            toolkit = _UPDATE.sub(r"\1.\2", row["cuda_toolkit"])
            return _statement(toolkit, f">={row['min_driver_linux_x86_64']}", "*" if _has_family(toolkit) else "")

        yield self._relation("cuda", "driver", Inference.THRESHOLD, rows, statement)

    def matrix(self, rows: list[Row]) -> Iterator[Relation]:
        yield self._relation(
            "torch",
            "python",
            Inference.WINDOW,
            rows,
            lambda row: _statement(row["torch"], _supported(row["python"]), _experimental(row["python"])),
        )
        both = [{**row, "cuda": f"{row['stable_cuda']};{row['experimental_cuda']}"} for row in rows]
        yield self._relation("torch", "cuda", Inference.LIST, both, _pairs("torch", "cuda"))

    def architectures(self, rows: list[Row]) -> Iterator[Relation]:
        def statement(row: Row) -> Statement:
            given = {"cuda": row["cuda"], "machine": row["platform"].partition("-")[2]}
            return Statement(read_release(row["torch"]), read_device_code(row["arch_list"]), given=given)

        yield self._relation("torch", "capability", Inference.CODE, rows, statement)

    def fbgemm(self, rows: list[Row]) -> Iterator[Relation]:
        for column in ("pytorch", "python", "cuda", "rocm"):
            about = "torch" if column == "pytorch" else column
            yield self._relation("fbgemm-gpu", about, _rule(about), rows, _pairs("fbgemm", column))

        def statement(row: Row) -> Statement:
            return Statement(read_release(row["fbgemm"]), read_device_code(row["cuda_arch"]))

        yield self._relation("fbgemm-gpu", "capability", Inference.CODE, rows, statement)

    def wheels(self, rows: list[Row]) -> Iterator[Relation]:
        """One row is one file, so all rows of a release count together.

        The table begins at one version of Python, so about earlier ones it says nothing. The README of torchvision
        pairs minor releases, and this table pairs exact ones.
        """
        first = min((row["python"] for row in rows), key=_numbers, default="")
        unclear: dict[str, Callable[[str], str]] = {
            "cuda": lambda _: "",
            "python": lambda _: f"<{first}",
            "torchvision": _same_minor,
            "torchaudio": _same_minor,
        }
        for about, left_open in unclear.items():
            releases: dict[str, set[str]] = defaultdict(set)
            for row in rows:
                if row[about]:
                    releases[row["torch"].partition("+")[0]].add(row[about].partition("+")[0])
            together = [{"torch": release, about: ";".join(sorted(values))} for release, values in releases.items()]
            found = self._relation("torch", about, _rule(about), together, _pairs("torch", about, left_open))
            yield replace(found, pairs=_made_for_one(about))

    def _relation(
        self, subject: str, about: str, rule: Inference, rows: Iterable[Row], make: Callable[[Row], Statement]
    ) -> Relation:
        statements = []
        for row in rows:
            try:
                statements.append(make(row))
            except ValueError as error:
                self.left_out.append(f"{subject} {about}: {dict(row)}: {error}")
        return Relation(
            f"{subject} {about}", subject, about, rule, Consequence.FAILS, "{release} {value}", "", tuple(statements)
        )


def _made_for_one(about: str) -> Releases | None:
    """The partners that are made for one minor release of torch, as our own data have it."""
    ours = documents().relations.get(f"torch_{about}")
    return ours.pairs if ours else None


def _rule(about: str) -> Inference:
    """Versions of Python have no gaps; builds and partners have."""
    return Inference.WINDOW if about == "python" else Inference.LIST


def _has_family(toolkit: str) -> bool:
    """Whether the driver of this toolkit is not the least one, because another row is about all of its family."""
    return not toolkit.endswith(".x") and read_release(toolkit).numbers[0] >= FIRST_MINOR_COMPATIBLE


def _pairs(subject: str, about: str, unclear: Callable[[str], str] = lambda _: "") -> Callable[[Row], Statement]:
    """Makes a statement of two columns: a release, and all values of another fact that it works with."""
    return lambda row: _statement(row[subject], _listed(row[about]), unclear(row[about]))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _supported(cell: str) -> str:
    """`>=3.9,<=3.12, (3.13 experimental)` without what is experimental."""
    return re.sub(r",?\s*\([^)]*\)", "", re.sub(r"<=\s*\(([\d.]+),[^)]*\)", r"<=\1", cell))


def _experimental(cell: str) -> str:
    """The versions that a cell calls experimental, as a set of releases."""
    return " | ".join(re.findall(r"([\d.]+) experimental", cell))


def _same_minor(cell: str) -> str:
    return " | ".join(version.rpartition(".")[0] for version in cell.split(";"))


def _listed(cell: str) -> str:
    """`12.6, 12.8 13.0` as a set of releases."""
    return " | ".join(filter(None, _LIST.split(cell)))


def _statement(release: str, allows: str, unclear: str = "") -> Statement:
    return Statement(read_release(release), read_releases(allows), read_releases(unclear) if unclear else None)
