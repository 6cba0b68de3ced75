"""Which releases of torch Pharoah is for (ADR 62). `python -m evaluation releases` tests each of them."""

from __future__ import annotations

from pharoah.capture.inventory import find_loaded_version
from pharoah_archetypes.documented.releases import read_release

OLDEST_TORCH = "2.4"
"""The floor in `pyproject.toml`."""
NEWEST_TESTED_TORCH = "2.15"


def find_installed_torch() -> str:
    """The release of torch of this interpreter, without importing it; empty where there is none."""
    return find_loaded_version("torch", "torch")


def outside_promise(release: str) -> str:
    """Why nothing is promised for a release of torch, in a sentence; empty for those that are promised and tested."""
    try:
        numbers = read_release(release).numbers[:2]
    except ValueError:
        return f"torch {release} is not a release, so nothing is promised for it"
    if numbers < read_release(OLDEST_TORCH).numbers:
        return f"torch {release} is not supported: it is older than {OLDEST_TORCH}, the oldest release that is"
    if numbers > read_release(NEWEST_TESTED_TORCH).numbers:
        return f"torch {release} is not tested: it is newer than {NEWEST_TESTED_TORCH}, the newest release that is"
    return ""


def doubts() -> str:
    """The same about the torch of this interpreter; empty where it has none."""
    release = find_installed_torch()
    return outside_promise(release) if release else ""
