"""Workloads as data: a file each, which names a script and the settings that a campaign may vary.

A file `NAME.toml` stands in `pharoah_benchmarks/workloads`, or in a folder that the environment variable
`PHAROAH_WORKLOADS` names, on the provider and on its nodes. Without torch: providers read plans.

    help = "a decoder of the family Llama, from transformers"
    archetype = "decoder"               # its entry in the catalogue, where it has one
    script = "transformers_model.py"    # beside the file; has build(**settings) -> Workload
    [fixed]                             # arguments of `build` that no campaign changes
    kind = "llama"
    [settings]                          # whole numbers with their defaults
    batch = 2
    [choices]                           # words; the first is the default
    attention = ["sdpa", "eager"]
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pharoah_system.bounded_reading import UnreadableInput, read_toml_file

FOLDERS = "PHAROAH_WORKLOADS"
"""Environment: folders with workloads of a provider's own, separated as in PATH."""
_OWN = Path(__file__).parent / "workloads"
_KEYS = {"help", "archetype", "script", "fixed", "settings", "choices"}


class WorkloadFileError(ValueError):
    """A file that is no workload; the message names the file and the key."""


@dataclass(frozen=True)
class WorkloadFile:
    """One workload as its file states it."""

    name: str
    help: str
    script: Path
    archetype: str
    """Id of its entry in the catalogue; empty where it has none."""
    fixed: dict[str, Any]
    settings: dict[str, int]
    """Numbers that a campaign may vary, with their defaults."""
    choices: dict[str, tuple[str, ...]]
    """Words that a campaign may vary; the first of each is the default."""

    @property
    def defaults(self) -> dict[str, Any]:
        """What `build` is called with when a campaign varies nothing."""
        return {**self.fixed, **self.settings, **{name: words[0] for name, words in self.choices.items()}}


def workload_files() -> dict[str, WorkloadFile]:
    """All workloads by name. Raises WorkloadFileError for a file that is none, and for a name that comes twice."""
    return _read(tuple(filter(None, os.environ.get(FOLDERS, "").split(os.pathsep))))


@lru_cache(maxsize=4)
def _read(folders: tuple[str, ...]) -> dict[str, WorkloadFile]:
    known: dict[str, WorkloadFile] = {}
    for folder in (_OWN, *map(Path, folders)):
        if not folder.is_absolute() or not folder.is_dir():  # cells run in another folder than their agent
            raise WorkloadFileError(f"{FOLDERS}: {folder}: not the absolute path of a folder")
        for path in sorted(folder.glob("*.toml")):
            if path.stem in known:
                raise WorkloadFileError(f"{path}: there is a workload {path.stem} already")
            known[path.stem] = _workload(path)
    return dict(sorted(known.items()))


def _workload(path: Path) -> WorkloadFile:
    try:
        data = read_toml_file(path)
    except OSError as error:
        raise WorkloadFileError(f"{path}: {error.strerror}") from None
    except UnreadableInput as error:
        raise WorkloadFileError(str(error)) from None
    if unknown := data.keys() - _KEYS:
        raise WorkloadFileError(f"{path}: {min(unknown)}: unknown key; known are {', '.join(sorted(_KEYS))}")
    for key, kind in (("help", str), ("script", str), ("archetype", str), ("fixed", dict), ("settings", dict)):
        if not isinstance(data.setdefault(key, kind()), kind):
            raise WorkloadFileError(f"{path}: {key}: expected a {'text' if kind is str else 'table'}")
    script = path.parent / data["script"]
    if not data["script"] or not script.is_file():
        raise WorkloadFileError(f"{path}: script: {data['script'] or 'missing'}: no such file beside it")
    for name, value in data["settings"].items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise WorkloadFileError(f"{path}: settings.{name}: {value!r} is not a whole number above 0")
    choices = data.get("choices", {})
    if not isinstance(choices, dict) or not all(_are_words(words) for words in choices.values()):
        raise WorkloadFileError(f"{path}: choices: expected lists of words")
    return WorkloadFile(
        path.stem,
        data["help"],
        script,
        data["archetype"],
        data["fixed"],
        data["settings"],
        {name: tuple(words) for name, words in choices.items()},
    )


def _are_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)
