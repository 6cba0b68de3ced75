"""Where environments are built and kept: a virtual environment each, built once on a node and used offline afterwards.

An environment inherits what the Python that builds it finds, so that only what differs is installed: torch is not
copied for each version of another library. What is inherited comes later in the search path. The key of an environment
holds its text, the version of Python and the versions of all that is inherited; a node whose software changes builds
its environments again. An environment is finished when its stamp is there, which is written last.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_benchmarks.environments.answer import BuildError
from pharoah_benchmarks.environments.build import Base, base_of, build
from pharoah_protocol.files import write_atomically
from pharoah_protocol.trusted_paths import UntrustedPathError, trusted_folder, trusted_users

FOLDER = "PHAROAH_ENVIRONMENTS"
"""Environment variable: the folder in which environments are built and kept."""
FORMAT = 1
"""Part of the key: it grows when environments are built in another way."""
_STAMP = "pharoah-environment.json"
_KEY_BYTES = 10


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """What a finished environment is."""

    environment: str
    """Its text."""
    python: str
    """The version of Python, in full."""
    packages: dict[str, str]
    """All packages that were installed in it, with what they needed, and their versions."""


class EnvironmentStore:
    """The environments of one folder. Several processes may use it at once."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: by default that of the variable PHAROAH_ENVIRONMENTS, else one in the user's cache."""
        self._folder = folder or _default_folder()

    def interpreter(self, environment: Environment) -> Path:
        """The Python of an environment, which is built first where it was not yet. This takes minutes.

        Another process that builds the same one is waited for. Raises BuildError with the reason.
        """
        base = base_of(environment)
        home = self._ready_folder() / _key(environment, base)
        if not (home / _STAMP).exists():
            with _locked(home.with_suffix(".lock")):
                if not (home / _STAMP).exists():
                    self._build(home, environment, base)
        return home / "bin" / "python"

    def finished(self) -> list[Stamp]:
        """What is there, in the order of the texts. What is being built, or cannot be read, is left out."""
        found = []
        for path in self._folder.glob(f"*/{_STAMP}"):
            try:
                data = json.loads(path.read_text())
                Environment.read(data["environment"])
                found.append(Stamp(**data))
            except (OSError, ValueError, TypeError, KeyError, EnvironmentTextError):
                continue
        return sorted(found, key=lambda stamp: stamp.environment)

    def _build(self, home: Path, environment: Environment, base: Base) -> None:
        try:
            if home.exists():
                shutil.rmtree(home)  # a build that was interrupted
            try:
                packages = build(home, environment, base)
            except BuildError:
                shutil.rmtree(home)
                raise
            stamp = Stamp(environment=environment.text, python=base.version, packages=packages)
            write_atomically(home / _STAMP, json.dumps(asdict(stamp), indent=1), durable=True)
        except OSError as error:
            raise BuildError(f"{home}: {error.strerror or error}") from None

    def _ready_folder(self) -> Path:
        """The folder, in which nobody else may put code. Raises BuildError."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            return trusted_folder(self._folder, trusted_users())
        except (OSError, UntrustedPathError) as error:
            raise BuildError(f"{FOLDER}: {error}") from None


def _default_folder() -> Path:
    if named := os.environ.get(FOLDER):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pharoah" / "environments"


def _key(environment: Environment, base: Base) -> str:
    content = json.dumps([FORMAT, environment.text, base.version, base.folders, base.packages])
    return hashlib.blake2b(content.encode(), digest_size=_KEY_BYTES).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time, until this one ends, however it ends. Raises BuildError."""
    try:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror or error}") from None
