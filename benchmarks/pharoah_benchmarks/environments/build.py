"""How one environment is built: a virtual environment that inherits, with the wheels of its lock installed by pip.

pip resolves nothing here, builds nothing from source, and installs no file with another hash (`lock`).
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

import pharoah
import pharoah_archetypes
import pharoah_benchmarks
import pharoah_protocol
import pharoah_system
from pharoah_benchmarks.environments._environment import Environment
from pharoah_benchmarks.environments.answer import BUILD_SECONDS, BuildError
from pharoah_benchmarks.environments.lock import LockedPackage
from pharoah_system.files import write_atomically
from pharoah_system.own_python import NEUTRAL_FOLDER
from pharoah_system.parent_process import end_with_parent
from pharoah_system.text import sanitize_text

HEAVY = "torch"
"""Nodes have it; an environment has one of its own only where it states it."""
_INHERITED = "pharoah_inherited.pth"
"""The name of the path file: folders that come after the packages of the environment itself (`site`)."""
_LINKS = "pharoah"
"""Folder of an environment with links to our own packages, for a Python that inherits nothing."""
_OWN_PACKAGES = (pharoah, pharoah_archetypes, pharoah_benchmarks, pharoah_protocol, pharoah_system)
"""What a cell needs of Pharoah."""
_MAX_REASON_LENGTH = 400
_PASSING = re.compile(
    r"connection broken by|Connection (?:refused|reset|aborted|timed out|to .* timed out)|[Rr]ead timed out"
    r"|name resolution|Name or service not known|\b5\d\d Server Error|No space left on device|Disk quota exceeded"
)
"""What pip prints when the index or this machine is at fault and not the packages."""
_CONFLICT = re.compile(r"ResolutionImpossible|\(from versions: (?!none\))")
"""What pip prints of packages that it has found, and that do not fit."""
_PRINTED_VERSION = "import platform; print(platform.python_version())"
_INSTALLED = """\
import json, sys
from importlib import metadata
found = metadata.distributions(path=[path for path in sys.path if path.startswith(sys.prefix)])
print(json.dumps({one.metadata["Name"]: one.version for one in found}))
"""
"""Prints the packages of an environment without what it inherits."""


@dataclass(frozen=True)
class Base:
    """What an environment is made from."""

    interpreter: str
    version: str
    """The version of Python, in full."""
    folders: tuple[str, ...]
    """Folders of packages that are inherited, in the order in which they are searched; none by another Python."""
    packages: tuple[str, ...]
    """What is in these folders, as `name==version`, sorted."""


def base_of(environment: Environment) -> Base:
    """The Python of an environment on this machine. Raises BuildError where there is none."""
    own = platform.python_version()
    if environment.python in ("", own.rpartition(".")[0]):
        folders = _inheritable()
        packages = {f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions(path=list(folders))}
        return Base(sys.executable, own, folders, tuple(sorted(packages)))
    name = f"python{environment.python}"
    found = shutil.which(name)
    version = _version(found) if found else ""
    if not found or not version.startswith(f"{environment.python}."):
        raise BuildError(f"python {environment.python} is not here: no program {name} that runs is in the PATH")
    return Base(found, version, (), ())


def build(home: Path, packages: Sequence[LockedPackage], base: Base, lock: int) -> dict[str, str]:
    """Build an environment in the folder `home`, which does not exist yet. All packages in it, with their versions.

    `packages`: all that is installed. `lock`: the descriptor of the lock on `home`. The commands have it as well, so
    that no other builder begins while one of them still writes, also when this process is killed. Raises BuildError
    with the last words of the command that failed, or OSError.
    """
    home.mkdir(parents=True, mode=0o700)
    run_command("venv", [base.interpreter, "-I", "-m", "venv", str(home)], lock)
    python = str(home / "bin" / "python")
    inherited = list(base.folders) or [_link(home)]
    packages_folder = next((home / "lib").glob("python*/site-packages"))
    write_atomically(packages_folder / _INHERITED, "".join(f"{folder}\n" for folder in inherited))
    if packages:
        file = home / "requirements.txt"
        write_atomically(file, "".join(f"{package.requirement}\n" for package in packages))
        pip = [python, "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
        pip += ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", str(file)]
        run_command("pip", pip, lock)
    installed: dict[str, str] = json.loads(run_command("python", [python, "-I", "-c", _INSTALLED], lock))
    return dict(sorted(installed.items()))


def _passes(lines: Sequence[str]) -> bool:
    """Whether a failure of pip may pass. It tries again after a connection that failed, so words of one count only
    where nothing was found in the end."""
    text = "\n".join(lines)
    return _PASSING.search(text) is not None and _CONFLICT.search(text) is None


def _inheritable() -> tuple[str, ...]:
    """Folders in which this process finds packages that are not of the standard library."""
    library = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}
    library |= {folder / "lib-dynload" for folder in library}
    found = [Path(entry).resolve() for entry in sys.path if Path(entry).is_absolute()]
    return tuple(dict.fromkeys(str(entry) for entry in found if entry.is_dir() and entry not in library))


def _link(home: Path) -> str:
    """A folder with links to our own packages alone."""
    folder = home / _LINKS
    folder.mkdir()
    for package in _OWN_PACKAGES:
        (folder / package.__name__).symlink_to(Path(str(package.__file__)).parent.resolve())
    return str(folder)


def _version(interpreter: str) -> str:
    """The version of a Python; empty where it does not run."""
    try:
        return run_command("python", [interpreter, "-I", "-c", _PRINTED_VERSION]).strip()
    except BuildError:
        return ""


def run_command(what: str, command: Sequence[str], *held: int) -> str:
    """What a command prints, which ends with this process. `held`: descriptors that it has as well.

    Raises BuildError with what pip calls an error, or with the last line."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=NEUTRAL_FOLDER,
            timeout=BUILD_SECONDS,
            pass_fds=held,
            preexec_fn=partial(end_with_parent, os.getpid()),
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{what}: longer than {BUILD_SECONDS:g} s", may_be_tried_again=True) from None
    except OSError as error:
        raise BuildError(f"{what}: {error}", may_be_tried_again=True) from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = (
            [line for line in lines if line.startswith("ERROR")] or lines[-1:] or [f"exit status {done.returncode}"]
        )
        first = re.sub(r" \(from versions: .*\)", "", errors[0])  # pip lists hundreds of them
        raise BuildError(
            sanitize_text(f"{what}: {first}", _MAX_REASON_LENGTH),
            may_be_tried_again=done.returncode < 0 or _passes(lines),
        )
    return done.stdout
