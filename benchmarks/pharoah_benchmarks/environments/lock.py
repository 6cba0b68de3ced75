"""Locks of environments: which wheels with which hashes pip installs, decided once, where a campaign is planned.

A lock belongs to one environment and one kind of machine. A campaign file, or a file of environments, has it as a
table:

    [[lock]]
    environment = "tqdm==4.67.1"
    python = "3.11"
    platform = "linux_x86_64"
    packages = ["tqdm==4.67.1 tqdm-4.67.1-py3-none-any.whl sha256:..."]   # all that is installed, nothing else

Nodes install these wheels and nothing else, so who can change a package index cannot run code on them afterwards.
"""

from __future__ import annotations

import json
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json

MAX_PACKAGES = 300
"""Packages of one lock: torch for GPUs with all that it needs has 30."""
MAX_LOCKS = 16
"""Kinds of machines for which one environment is locked."""
MAX_TEXT_CHARACTERS = 100_000
"""All locks of one environment: 300 packages have about 60,000. An argument of a program has 131,072 at most (Linux).
"""
_KEYS = {"environment", "python", "platform", "packages"}
_NAME = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}"
_WHEEL = r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,249}\.whl"
_PACKAGE = re.compile(rf"({_NAME})==({_VERSION}) ({_WHEEL}) sha256:([0-9a-f]{{64}})")
_PYTHON = re.compile(r"3\.\d{1,2}")
_PLATFORM = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")


class LockError(ValueError):
    """No lock, or one that does not fit; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class LockedPackage:
    """One wheel."""

    name: str
    version: str
    wheel: str
    """The name of the file."""
    sha256: str

    @property
    def requirement(self) -> str:
        """As pip reads it with `--require-hashes`."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"

    @property
    def text(self) -> str:
        return f"{self.name}=={self.version} {self.wheel} sha256:{self.sha256}"

    @classmethod
    def read(cls, text: object) -> LockedPackage:
        """Raises LockError."""
        found = _PACKAGE.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise LockError(f"{text!r:.80} is not a package such as `tqdm==4.67.1 NAME.whl sha256:HASH`")
        return cls(name=found[1], version=found[2], wheel=found[3], sha256=found[4])


@dataclass(frozen=True, kw_only=True)
class Lock:
    """All wheels of one environment for one kind of machine."""

    environment: Environment
    python: str
    """Such as `3.11`."""
    platform: str
    """As `this_platform` gives it, such as `linux_x86_64`."""
    packages: tuple[LockedPackage, ...]
    """Sorted by name."""

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> Lock:
        """Read a table. Raises LockError that names the key."""
        if unknown := table.keys() ^ _KEYS:
            raise LockError(f"{min(unknown)}: expected the keys {', '.join(sorted(_KEYS))}")
        try:
            environment = Environment.read(table["environment"])
        except EnvironmentTextError as error:
            raise LockError(f"environment: {error}") from None
        for key, form in (("python", _PYTHON), ("platform", _PLATFORM)):
            if not isinstance(table[key], str) or not form.fullmatch(table[key]):
                raise LockError(f"{key}: {table[key]!r:.80} is none, such as 3.11 or linux_x86_64")
        stated = table["packages"]
        if not isinstance(stated, list) or not 0 < len(stated) <= MAX_PACKAGES:
            raise LockError(f"packages: expected a list of 1 to {MAX_PACKAGES} texts")
        packages = sorted(map(LockedPackage.read, stated), key=lambda package: package.name)
        return cls.from_environment(environment, table["python"], table["platform"], packages)

    @classmethod
    def from_environment(
        cls, environment: Environment, python: str, platform: str, packages: Iterable[LockedPackage]
    ) -> Lock:
        """Raises LockError for a lock without a package that the environment states, or with one twice."""
        locked = tuple(sorted(packages, key=lambda package: package.name))
        versions = {package.name: package.version for package in locked}
        if len(versions) < len(locked):
            raise LockError(f"{environment.text}: a package comes twice")
        for stated in environment.packages:
            name, _, version = stated.partition("==")
            if versions.get(name) != version:
                raise LockError(f"{environment.text}: {stated} is not among the packages of the lock")
        if environment.python and python != environment.python:
            raise LockError(f"{environment.text}: the lock is for Python {python}")
        return cls(environment=environment, python=python, platform=platform, packages=locked)

    @property
    def table(self) -> str:
        """As TOML."""
        lines = [f'environment = "{self.environment.text}"', f'python = "{self.python}"']
        packages = "".join(f'    "{package.text}",\n' for package in self.packages)
        return "\n".join(["[[lock]]", *lines, f'platform = "{self.platform}"', f"packages = [\n{packages}]\n"])


def this_platform() -> str:
    """The kind of this machine, as locks name it."""
    return re.sub(r"[-.]", "_", sysconfig.get_platform()).lower()


def read_locks(tables: Iterable[Mapping[str, Any]]) -> dict[str, list[Lock]]:
    """The locks of a file by the text of their environment. Raises LockError, which begins with `lock: `."""
    found: dict[str, list[Lock]] = {}
    for table in tables:
        try:
            lock = Lock.read(table)
        except LockError as error:
            raise LockError(f"lock: {error}") from None
        beside = found.setdefault(lock.environment.text, [])
        if any((one.python, one.platform) == (lock.python, lock.platform) for one in beside):
            raise LockError(f"lock: {lock.environment.text}: Python {lock.python} on {lock.platform} comes twice")
        beside.append(lock)
        if len(beside) > MAX_LOCKS:
            raise LockError(f"lock: {lock.environment.text}: more than {MAX_LOCKS} kinds of machines")
    return found


def locks_text(locks: Sequence[Lock]) -> str:
    """The locks of one environment as the text that goes with its cells; empty without one. Raises LockError."""
    if not locks:
        return ""
    kinds = [[one.python, one.platform, [package.text for package in one.packages]] for one in locks]
    text = json.dumps(kinds, separators=(",", ":"))
    if len(text) > MAX_TEXT_CHARACTERS:
        raise LockError(f"lock: {locks[0].environment.text}: more than {MAX_TEXT_CHARACTERS:,} characters")
    return text


def choose_lock(environment: Environment, text: str, python: str) -> Lock | None:
    """The lock for this machine and a version of Python, from what `locks_text` gave; None where an environment has no
    packages. Raises LockError."""
    if not environment.packages:
        return None
    if not text:
        raise LockError(
            f"the environment {environment.text} has no lock, and packages without one are not installed; plan the "
            "campaign again (`pharoah-provider campaign plan` makes locks)"
        )
    locks = _parse_text(environment, text)
    for lock in locks:
        if (lock.python, lock.platform) == (python, this_platform()):
            return lock
    kinds = ", ".join(f"Python {one.python} on {one.platform}" for one in locks)
    raise LockError(
        f"the environment {environment.text} has no lock for Python {python} on {this_platform()}, only for {kinds}; "
        f"plan the campaign again with `--python {python} --platform {this_platform()}`"
    )


def _parse_text(environment: Environment, text: str) -> list[Lock]:
    """Raises LockError."""
    try:
        if len(text) > MAX_TEXT_CHARACTERS:
            raise ValueError("it is too long")
        return [
            Lock.from_environment(environment, str(python), str(platform), map(LockedPackage.read, packages))
            for python, platform, packages in parse_json(text, "lock", MESSAGE_LIMITS)
        ]
    except (ValueError, TypeError) as error:
        raise LockError(f"the lock of the environment {environment.text} cannot be used: {error}") from None
