"""Results of this evaluation, one JSON line each, appended as they come: a second call goes on where one stopped."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Key:
    """What a result is the result of."""

    torch: str
    python: str
    work: str
    """A script, or a check that has none."""
    mode: str
    digest: str
    """Stands for everything that the result depends on beside the release."""


class Results:
    """A file of results. May be used by several threads of one process."""

    def __init__(self, path: Path) -> None:
        """A line that cannot be read is that of a call that was killed while it wrote; its work is done again."""
        self._path, self._lock = path, threading.Lock()
        self._known: dict[Key, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text(errors="replace") if path.exists() else ""
        for line in text.splitlines():
            try:
                data = json.loads(line)
                self._known[Key(**data["key"])] = data["result"]
            except (ValueError, KeyError, TypeError):
                continue
        if text and not text.endswith("\n"):
            with path.open("a") as file:
                file.write("\n")  # the next line must not continue half a line

    def get(self, key: Key) -> dict[str, Any] | None:
        with self._lock:
            return self._known.get(key)

    def add(self, key: Key, result: dict[str, Any], keep: bool = True) -> None:
        """`keep`: whether it is written; a result that another call may get otherwise, such as one that took too long
        on a busy machine, is known to this call only."""
        with self._lock:
            self._known[key] = result
            if keep:
                with self._path.open("a") as file:
                    file.write(json.dumps({"key": asdict(key), "result": result}) + "\n")


def digest_of(files: Iterable[Path]) -> str:
    """One digest of the contents of files and their names, in any order."""
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:16]
