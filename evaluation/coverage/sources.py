"""Where the jobs of this evaluation come from: scripts of ours, models of libraries, and folders of public scripts."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

from evaluation.coverage.job import Job

HERE = Path(__file__).parent
LIST = "commands.toml"
"""The list of commands in a folder of public scripts: one table `[[job]]` each, see `public_scripts`."""


def loops(interpreter: str) -> list[Job]:
    """Training loops as people write them, one file each."""
    scripts = sorted((HERE / "loops").glob("*.py"))
    return [Job(script.stem, (interpreter, str(script))) for script in scripts]


def families(interpreter: str, library: str) -> list[Job]:
    """One training loop for each tiny model of a library."""
    program = (interpreter, str(HERE / "families"), library)
    listed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    return [Job(f"{library} {name}", (*program, name)) for name in listed]


def public_scripts(interpreter: str, folder: Path) -> list[Job]:
    """Scripts of public repositories, unchanged. `commands.toml` in the folder has for each of them `name`, `folder`
    (below this one), `command` (a list; `python` is the interpreter with the libraries), and, where they are needed,
    `variables` and `only_dry = true` for scripts that want more GPUs than there are.

    Raises SystemExit for a list that is missing or wrong.
    """
    try:
        entries = tomllib.loads((folder / LIST).read_text())["job"]
        return [_public(interpreter, folder, entry) for entry in entries]
    except OSError as error:
        raise SystemExit(f"--scripts {folder}: {LIST}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SystemExit(f"--scripts {folder}: {LIST}: {error}") from None


def _public(interpreter: str, folder: Path, entry: dict[str, object]) -> Job:
    words = entry["command"]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise TypeError(f"{entry.get('name')}: command: expected a list of words")
    beside = Path(interpreter).parent
    program = str(beside / words[0]) if (beside / words[0]).exists() else words[0]
    variables = entry.get("variables", {})
    assert isinstance(variables, dict)
    return Job(
        str(entry["name"]),
        (program, *words[1:]),
        folder / str(entry["folder"]),
        {str(name): str(value) for name, value in variables.items()},
        runs_here=not entry.get("only_dry", False),
    )
