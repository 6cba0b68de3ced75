"""Tables of documented compatibility as relations: the rows of CSV files take the place of our own data files."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pharoah_archetypes.documented import Consequence, Inference, Relation, Statement
from pharoah_archetypes.documented.device_code import read_device_code
from pharoah_archetypes.documented.releases import read_release, read_releases

Row = Mapping[str, str]
FIRST_MINOR_COMPATIBLE = 11
"""The CUDA major number from which on the driver of a toolkit is enough and not the least one (NVIDIA CUDA
Compatibility, Minor Version Compatibility)."""
_UPDATE = re.compile(r"(\d+\.\d+) (?:U|Update )(\d+)")
_LIST = re.compile(r"[,;\s]+")


def relations_of(folder: Path) -> dict[str, list[Relation]]:
    """Table to the relations in it, of all tables that are in the folder."""
    return {
        name: list(read(list(_rows(folder / f"{name}.csv"))))
        for name, read in READERS.items()
        if (folder / f"{name}.csv").is_file()
    }


def _rows(file: Path) -> Iterator[Row]:
    with file.open(newline="") as lines:
        yield from csv.DictReader(lines)


def _drivers(rows: list[Row]) -> Iterator[Relation]:
    yield _relation("cuda", "driver", Inference.THRESHOLD, (
        _statement(release, f">={row['min_driver_linux_x86_64']}", "*" if _has_family(release) else "")
        for row in rows
        for release in [_UPDATE.sub(r"\1.\2", row["cuda_toolkit"])]
    ))  # fmt: skip


def _has_family(toolkit: str) -> bool:
    """Whether the driver of this toolkit is not the least one, because another row is about all of its family."""
    return not toolkit.endswith(".x") and read_release(toolkit).numbers[0] >= FIRST_MINOR_COMPATIBLE


def _matrix(rows: list[Row]) -> Iterator[Relation]:
    yield _relation("torch", "python", Inference.WINDOW, (_statement(row["torch"], row["python"]) for row in rows))
    yield _relation("torch", "cuda", Inference.WINDOW, (
        _statement(row["torch"], _listed(f"{row['stable_cuda']};{row['experimental_cuda']}")) for row in rows
    ))  # fmt: skip


def _architectures(rows: list[Row]) -> Iterator[Relation]:
    yield _relation("torch", "capability", Inference.WINDOW, (
        Statement(
            read_release(row["torch"]),
            read_device_code(row["arch_list"]),
            given={"cuda": row["cuda"], "machine": row["platform"].partition("-")[2]},
        )
        for row in rows
    ))  # fmt: skip


def _fbgemm(rows: list[Row]) -> Iterator[Relation]:
    for about in ("pytorch", "python", "cuda", "rocm"):
        yield _relation("fbgemm-gpu", "torch" if about == "pytorch" else about, Inference.WINDOW, (
            _statement(row["fbgemm"], _listed(row[about])) for row in rows
        ))  # fmt: skip
    yield _relation("fbgemm-gpu", "capability", Inference.WINDOW, (
        Statement(read_release(row["fbgemm"]), read_device_code(row["cuda_arch"])) for row in rows
    ))  # fmt: skip


def _wheels(rows: list[Row]) -> Iterator[Relation]:
    """One row is one file, so all rows of a release count together. The table begins at one version of Python, so about
    earlier ones it says nothing. The README of torchvision pairs minor releases, and the table exact ones."""
    values: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for row in rows:
        for about in ("cuda", "torchvision", "torchaudio", "python"):
            if row[about]:
                values[about][row["torch"].partition("+")[0]].add(row[about].partition("+")[0])
    first_python = min((read_release(one).numbers for of in values["python"].values() for one in of), default=(3,))
    earlier = f"<{'.'.join(map(str, first_python))}"
    unclear: dict[str, Callable[[Iterable[str]], str]] = {
        "cuda": lambda _: "",
        "python": lambda _: earlier,
        "torchvision": _same_minor,
        "torchaudio": _same_minor,
    }
    for about, releases in values.items():
        yield _relation("torch", about, Inference.WINDOW, (
            _statement(release, _listed(";".join(of)), unclear[about](of)) for release, of in releases.items()
        ))  # fmt: skip


READERS: dict[str, Callable[[list[Row]], Iterator[Relation]]] = {
    "cuda_min_driver": _drivers,
    "pytorch_release_matrix": _matrix,
    "pytorch_arch_lists": _architectures,
    "fbgemm_releases": _fbgemm,
    "torch_cuda_python": _wheels,
}


def _same_minor(versions: Iterable[str]) -> str:
    return " | ".join(sorted(version.rpartition(".")[0] for version in versions))


def _listed(cell: str) -> str:
    """`12.6, 12.8 13.0` as a set of releases."""
    return " | ".join(filter(None, _LIST.split(cell)))


def _relation(subject: str, about: str, inference: Inference, statements: Iterable[Statement]) -> Relation:
    return Relation(
        f"{subject} {about}", subject, about, inference, Consequence.FAILS, "{release} {value}", "", tuple(statements)
    )


def _statement(release: str, allows: str, unclear: str = "") -> Statement:
    return Statement(read_release(release), read_releases(allows), read_releases(unclear) if unclear else None)
