"""Where environments are built and kept: a virtual environment each, built once on a node and used offline afterwards.

An environment inherits what the Python that builds it finds, so that only what differs is installed: torch is not
copied for each version of another library. What is inherited comes later in the search path. The key of an environment
holds its text, its lock, the version of Python and the versions of all that is inherited; a node whose software changes
builds its environments again. An environment is finished when its stamp is there, which is written last. The time of
the stamp is when the environment was used last.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_benchmarks.environments.answer import BuildError
from pharoah_benchmarks.environments.build import Base, base_of, build
from pharoah_benchmarks.environments.lock import LockedPackage, LockError, choose_lock
from pharoah_system.bounded_reading import read_json_file
from pharoah_system.files import open_lock, write_atomically
from pharoah_system.trusted_paths import (
    find_folder,
    is_own_file,
    make_folder,
)

FOLDER = "PHAROAH_ENVIRONMENTS"
"""Environment variable: the folder in which environments are built and kept."""
FORMAT = 2
"""Part of the key: it grows when environments are built in another way."""
_STAMP = "pharoah-environment.json"
_LOCK = ".lock"
_KEY_BYTES = 10
_HOME = re.compile(f"[0-9a-f]{{{2 * _KEY_BYTES}}}")
"""The name of the folder of an environment: its key."""


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

    def interpreter(self, environment: Environment, locks: str = "") -> Path:
        """The Python of an environment, which is built first where it was not yet. This takes minutes.

        `locks`: its locks as `lock.locks_text` gives them. Another process that builds the same one is waited for.
        Raises BuildError with the reason.
        """
        base = base_of(environment)
        try:
            lock = choose_lock(environment, locks, base.version.rpartition(".")[0])
        except LockError as error:
            raise BuildError(str(error)) from None
        packages = lock.packages if lock else ()
        home = self._ready_folder() / _key(environment, packages, base)
        if not _mark_used(home / _STAMP):
            with _lock(home.with_suffix(_LOCK)) as held:
                if not _mark_used(home / _STAMP):
                    self._build(home, environment, packages, base, held)
        return home / "bin" / "python"

    def list_finished(self) -> list[Stamp]:
        """What is there, in the order of the texts. What is being built, or cannot be read, is left out."""
        found = []
        for path in self._stamps():
            try:
                data = read_json_file(path)
                Environment.read(data["environment"])
                found.append(Stamp(**data))
            except (OSError, ValueError, TypeError, KeyError, EnvironmentTextError):
                continue
        return sorted(found, key=lambda stamp: stamp.environment)

    def _stamps(self) -> list[Path]:
        """Without those that others have put there; none in a folder where they can."""
        with contextlib.suppress(OSError):
            return [path for path in find_folder(self._folder).glob(f"*/{_STAMP}") if is_own_file(path)]
        return []

    def prune(self, unused_seconds: float) -> list[str]:
        """Delete the environments that nobody has used for so long, and what builds that were interrupted have
        left. The names of the folders that are gone. One that another process builds now stays. Raises BuildError."""
        deleted = []
        for home in sorted(path for path in self._ready_folder().iterdir() if _HOME.fullmatch(path.name)):
            with contextlib.suppress(BlockingIOError), _lock(home.with_suffix(_LOCK), wait=False):
                if _is_unused(home / _STAMP, time.time() - unused_seconds):
                    shutil.rmtree(home)
                    deleted.append(home.name)
        return deleted

    def _build(
        self, home: Path, environment: Environment, locked: Sequence[LockedPackage], base: Base, held: int
    ) -> None:
        try:
            if home.exists():
                shutil.rmtree(home)  # a build that was interrupted
            try:
                packages = build(home, locked, base, held)
            except BuildError:
                shutil.rmtree(home)
                raise
            stamp = Stamp(environment=environment.text, python=base.version, packages=packages)
            write_atomically(home / _STAMP, json.dumps(asdict(stamp), indent=1), durable=True)
        except OSError as error:
            raise BuildError(f"{home}: {error.strerror or error}", may_be_tried_again=True) from None

    def _ready_folder(self) -> Path:
        """The folder, in which nobody else may put code. Raises BuildError."""
        try:
            return make_folder(self._folder)
        except OSError as error:
            raise BuildError(f"{FOLDER}: {error.strerror or error}") from None


def _default_folder() -> Path:
    if named := os.environ.get(FOLDER):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "pharoah" / "environments"


def _key(environment: Environment, packages: Sequence[LockedPackage], base: Base) -> str:
    locked = [package.text for package in packages]
    content = json.dumps([FORMAT, environment.text, locked, base.version, base.folders, base.packages])
    return hashlib.blake2b(content.encode(), digest_size=_KEY_BYTES).hexdigest()


def use_own() -> None:
    """Note that the environment in which this process runs is used now. Does nothing outside of one."""
    _mark_used(Path(sys.prefix) / _STAMP)


def _mark_used(stamp: Path) -> bool:
    """Whether an environment is finished; the time of its stamp is now where this process may change it."""
    try:
        os.utime(stamp)
    except FileNotFoundError:
        return False
    except OSError:  # such as a file system that can only be read
        return stamp.exists()
    return True


def _is_unused(stamp: Path, since: float) -> bool:
    """Whether nobody has used an environment since a time, in unix seconds; it is not finished any more then.

    Who uses it holds no lock. So the stamp is taken away first, and put back when it was touched before that.
    """
    away = stamp.with_suffix(".pruned")
    with contextlib.suppress(FileNotFoundError):
        stamp.replace(away)
    try:
        used_at = away.stat().st_mtime
    except FileNotFoundError:
        return True  # a build that was interrupted
    if used_at < since:
        return True
    away.replace(stamp)
    return False


@contextmanager
def _lock(path: Path, wait: bool = True) -> Iterator[int]:
    """The descriptor of a lock that one process has at a time, until it ends, however it ends, with the commands that
    it has given it to. Raises BuildError, and BlockingIOError where another one has it and `wait` is false."""
    try:
        descriptor = open_lock(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)
    except BlockingIOError:
        raise
    except OSError as error:
        raise BuildError(f"{path}: {error.strerror or error}", may_be_tried_again=True) from None
