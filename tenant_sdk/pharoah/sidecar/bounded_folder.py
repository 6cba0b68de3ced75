"""A bound on what a provider can store on this machine: of a kind of files, the newest are kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import make_folder


@dataclass(frozen=True)
class Bound:
    """How much of one kind is kept."""

    most_files: int
    most_bytes: int


def keep_file(path: Path, content: bytes, bound: Bound) -> bool:
    """Write a file for this user's eyes; the oldest with the same ending go. Whether it fits. Raises OSError."""
    make_folder(path.parent)
    others = [other for other in path.parent.glob(f"*{path.suffix}") if other.name != path.name]
    if not make_room(others, bound, new_bytes=len(content)):
        return False
    write_atomically(path, content)
    return True


def make_room(files: Iterable[Path], bound: Bound, *, new_bytes: int, kept: Iterable[Path] = ()) -> bool:
    """Delete the oldest of `files` until one more file of `new_bytes` is within the bound; whether it is.

    Files that are `kept` are counted and not deleted.
    """
    protected = set(kept)
    sizes = {path: size for path in files if (size := _size(path)) is not None}
    oldest_first = sorted((path for path in sizes if path not in protected), key=_read_modified_at)
    while len(sizes) >= bound.most_files or sum(sizes.values()) + new_bytes > bound.most_bytes:
        if not oldest_first:
            return False
        oldest = oldest_first.pop(0)
        with contextlib.suppress(OSError):
            oldest.unlink(missing_ok=True)
        del sizes[oldest]
    return True


def _size(path: Path) -> int | None:
    """None for a file that another process has just deleted."""
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return None


def _read_modified_at(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0
