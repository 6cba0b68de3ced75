"""The order of versions, as PEP 440 has it for public versions."""

from __future__ import annotations

import re
from typing import NamedTuple

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<stage>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<number>\d*))?"
    r"(?:(?:[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))|-(?P<post_bare>\d+))?"
    r"(?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_number>\d*))?"
)
_STAGES = {"alpha": 0, "a": 0, "beta": 1, "b": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_DEVELOPED, _FINAL = -1, 3


class Stage(NamedTuple):
    """How finished a version is: developed, alpha, beta, candidate, or final, and the number of that stage."""

    kind: int
    number: int


class VersionKey(NamedTuple):
    """What versions are sorted by, the most important part first."""

    is_version: bool
    epoch: int
    release: tuple[int, ...]
    stage: Stage
    post: int
    """0 for a version that is not a later correction of a release."""
    developed: float
    """Number of a version under development; infinite for others, which come after it."""
    text: str
    """What is not a version; otherwise empty."""


def public_version(version: str) -> str:
    """A version without the part that names a build: `2.13.0+cpu` is `2.13.0`."""
    return version.partition("+")[0]


def version_key(version: str) -> VersionKey:
    """Sorts versions from old to new. What is not a version in the sense of PEP 440 comes first, as text."""
    match = _VERSION.fullmatch(public_version(version).strip().lower())
    if match is None:
        return VersionKey(False, 0, (), Stage(0, 0), 0, 0.0, version)
    release = [int(part) for part in match["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    is_post = bool(match["post"] or match["post_bare"])
    if match["stage"]:
        stage = Stage(_STAGES[match["stage"]], int(match["number"] or 0))
    else:
        # 1.0.dev1 comes before 1.0a1, and 1.0.post1.dev1 after 1.0.
        stage = Stage(_DEVELOPED if match["dev"] and not is_post else _FINAL, 0)
    post = 1 + int(match["post_number"] or match["post_bare"] or 0) if is_post else 0
    developed = float(match["dev_number"] or 0) if match["dev"] else float("inf")
    return VersionKey(True, int(match["epoch"] or 0), tuple(release), stage, post, developed, "")
