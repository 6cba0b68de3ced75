"""Where the jobs of this evaluation come from: scripts of ours, models of libraries, and folders of public scripts."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

from evaluation.coverage.job import REAL_SECONDS, Job
from pharoah._sidecar_link import SERVES

HERE = Path(__file__).parent
LIST = "commands.toml"
"""The list of commands in a folder of public scripts: one table `[[job]]` each, see `public_scripts`."""


def loops(interpreter: str) -> list[Job]:
    """Training loops as people write them, one file each."""
    scripts = sorted((HERE / "loops").glob("*.py"))
    return [Job(script.stem, (interpreter, str(script))) for script in scripts]


def serving(interpreter: str) -> list[Job]:
    """Scripts that compute answers and train nothing, one file each. Their real runs are without a dry run, so they are
    said to serve."""
    scripts = sorted((HERE / "serving").glob("*.py"))
    return [Job(script.stem, (interpreter, str(script)), variables={SERVES: "1"}) for script in scripts]


def families(interpreter: str, library: str) -> list[Job]:
    """One training loop for each tiny model of a library."""
    program = (interpreter, str(HERE / "families"), library)
    listed = subprocess.run(program, capture_output=True, text=True, check=True).stdout.split()
    return [Job(f"{library} {name}", (*program, name)) for name in listed]


def public_scripts(interpreter: str, folder: Path) -> list[Job]:
    """Scripts of public repositories, unchanged. `commands.toml` in the folder has for each of them `name`, `folder`
    (below this one, copied for every run), `command` (`python` is the interpreter with the libraries), and, where they
    are needed, `inside` (where in the folder the command starts), `variables` (`{scripts}` in them is this folder),
    `seconds` (how long it runs for real at most) and `only_dry = true` for scripts that want more GPUs than there are.

    Raises SystemExit for a list that is missing or wrong.
    """
    try:
        entries = tomllib.loads((folder / LIST).read_text())["job"]
        return [_public(interpreter, folder.resolve(), entry) for entry in entries]
    except OSError as error:
        raise SystemExit(f"--scripts {folder}: {LIST}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise SystemExit(f"--scripts {folder}: {LIST}: {error}") from None


def _public(interpreter: str, folder: Path, entry: dict[str, Any]) -> Job:
    words = entry["command"]
    if isinstance(words, str):
        words = shlex.split(words)
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise TypeError(f"{entry.get('name')}: command: expected a command line or a list of words")
    if not (folder / entry["folder"]).is_dir():
        raise ValueError(f"{entry['name']}: folder: {entry['folder']} is missing; see evaluation.coverage.public")
    beside = Path(interpreter).parent
    program = str(beside / words[0]) if (beside / words[0]).exists() else words[0]
    variables = {
        name: str(value).replace("{scripts}", str(folder)) for name, value in entry.get("variables", {}).items()
    }
    return Job(
        str(entry["name"]),
        (program, *words[1:]),
        folder / entry["folder"],
        variables,
        inside=str(entry.get("inside", ".")),
        runs_here=not entry.get("only_dry", False),
        seconds=float(entry.get("seconds", REAL_SECONDS)),
    )
