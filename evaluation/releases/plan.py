"""Which releases of torch are measured, with which Pythons: the newest patch of each minor release that is promised."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from evaluation.pages import ROOT

OWN_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
FIRST_PYTHON = "3.11"
"""Every release is measured with this one, the oldest that Pharoah runs on."""
FURTHER = {"3.12": ("2.4", "2.15"), "3.13": ("2.5", "2.15")}
"""Python to the oldest and the newest release that are measured with it. torch 2.5 is the first with wheels for 3.13
(`pip download torch==2.4.1 --python-version 3.13 --only-binary :all:` finds none)."""
FIRST_WITH = {"3.12": (2, 2), "3.13": (2, 5)}
"""The first release that has wheels for a Python."""
REFERENCE = "2.13"
"""The minor release that Pharoah is developed with; the archetypes of the others are compared with its."""
MAX_UNSUPPORTED = 2
"""So many releases right below the promise are installed."""
QUICK_RELEASES = 3

Version = tuple[int, ...]


@dataclass(frozen=True)
class Release:
    """One release of torch with one Python."""

    torch: str
    python: str

    @property
    def minor(self) -> str:
        return minor_of(self.torch)

    @property
    def is_own(self) -> bool:
        """Whether the interpreter that measures has it already."""
        return self.python == OWN_PYTHON and version("torch").partition("+")[0] == self.torch

    def __str__(self) -> str:
        return f"torch {self.torch}, Python {self.python}"


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    releases: tuple[Release, ...]
    unsupported: tuple[Release, ...]
    """Releases below the promise."""
    reference: Release


def parsed(text: str) -> Version:
    """A release as numbers. Raises ValueError for anything but numbers and dots: no release candidates."""
    if not re.fullmatch(r"\d+(\.\d+){1,2}", text):
        raise ValueError(f"{text!r} is not a release such as 2.4.1")
    return tuple(map(int, text.split(".")))


def minor_of(release: str) -> str:
    """`2.4` of `2.4.1`."""
    return ".".join(release.split(".")[:2])


def newest_patches(listed: Iterable[str]) -> dict[str, str]:
    """Minor release to its newest patch, ascending. Local builds and candidates are left out."""
    releases = sorted((parsed(text), text) for text in listed if re.fullmatch(r"\d+\.\d+\.\d+", text))
    return {minor_of(text): text for _, text in releases}


def listed_releases(index: str) -> list[str]:
    """The releases in what `pip index versions` prints. Raises SystemExit when there are none."""
    found = re.search(r"Available versions: (.*)", index)
    if not found:
        raise SystemExit("`pip index versions torch` lists no releases; name them with --torch")
    return found[1].split(", ")


def floor() -> Version:
    """The oldest release of torch that Pharoah promises (pyproject.toml, extra `torch`)."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["torch"]
    return parsed(next(line.partition(">=")[2].partition(",")[0] for line in extras if line.startswith("torch>=")))


def planned(torch: str | None, python: str | None, quick: bool) -> Plan:
    """The plan of a call; `torch` and `python` are the texts of its options, lists with commas. Raises SystemExit."""
    newest = newest_patches(listed_releases(_index()))
    lowest = floor()
    promised = {minor: release for minor, release in newest.items() if parsed(minor) >= lowest[:2]}
    below = [release for minor, release in newest.items() if parsed(minor) < lowest[:2]][-MAX_UNSUPPORTED:]
    if REFERENCE not in promised:
        raise SystemExit(f"the index has no torch {REFERENCE}, with which archetypes are compared")
    if torch or python:
        releases = _chosen(torch, python, promised)
        below = [one.torch for one in releases if parsed(one.torch)[:2] < lowest[:2]]
        releases = [one for one in releases if parsed(one.torch)[:2] >= lowest[:2]]
    else:
        releases = [Release(release, FIRST_PYTHON) for release in promised.values()]
        releases += [Release(promised[m], py) for py, minors in FURTHER.items() for m in minors if m in promised]
    if quick and not torch:
        releases, below = few(releases), below[-1:]
    return Plan(
        tuple(sorted(releases, key=lambda one: (parsed(one.torch), parsed(one.python)))),
        tuple(Release(release, FIRST_PYTHON) for release in below),
        Release(promised[REFERENCE], FIRST_PYTHON),
    )


def few(releases: Sequence[Release]) -> list[Release]:
    """The oldest, the middle and the newest of them with the first Python, or all if there are fewer."""
    first = [one for one in releases if one.python == FIRST_PYTHON] or list(releases)
    if len(first) <= QUICK_RELEASES:
        return first
    return [first[0], first[len(first) // 2], first[-1]]


def _chosen(torch: str | None, python: str | None, promised: dict[str, str]) -> list[Release]:
    try:
        pythons = [".".join(map(str, parsed(text))) for text in (python or FIRST_PYTHON).split(",")]
        if torch:
            return [Release(text, py) for text in torch.split(",") for py in pythons if parsed(text)]
        suits = [(text, py) for py in pythons for text in promised.values()]
        return [Release(text, py) for text, py in suits if parsed(text)[:2] >= FIRST_WITH.get(py, (0, 0))]
    except ValueError as error:
        raise SystemExit(f"--torch {torch} --python {python}: {error}") from None


def _index() -> str:
    """What pip says about the releases of torch, without constraints of this machine."""
    command = [sys.executable, "-m", "pip", "index", "versions", "torch"]
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    return subprocess.run(command, env=environ, capture_output=True, text=True).stdout
