"""Which walls a dry run is in."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum

SANDBOX_MODE = "PHAROAH_DRY_RUN_SANDBOX"
"""Variable set by tests: `user` for a user namespace also as root, `rules` for a dry run without namespaces."""
SCRATCH_FOLDER = "PHAROAH_DRY_RUN_FOLDER"
"""Variable with a folder for temporary files of a dry run without namespaces. The parent removes it."""
UNPROTECTED = "PHAROAH_DRY_RUN_UNPROTECTED"
"""Variable of the setting `allow_unprotected_dry_run`."""


class SandboxMode(StrEnum):
    """What keeps a dry run from the machine, the strongest first."""

    ROOT = "root"
    """Namespaces and a root of its own, made with the privileges of root."""
    USER = "user"
    """The same in a user namespace, for everybody else."""
    RULES = "rules"
    """Landlock and a filter for system calls: side effects are refused, and end the dry run."""
    UNPROTECTED = "unprotected"
    """Only Python's own side effects are refused: the machine offers nothing better, and the user has allowed it."""


@dataclass(frozen=True)
class Sandbox:
    """The walls around this process."""

    mode: SandboxMode
    refused: str = ""
    """Why there is no isolation; empty with isolation."""

    @property
    def is_isolated(self) -> bool:
        """Whether side effects may happen, because nothing of them stays."""
        return self.mode in (SandboxMode.ROOT, SandboxMode.USER)

    def to_json(self) -> str:
        """For a program that goes on inside the same walls."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Sandbox:
        """The inverse of `to_json`."""
        content = json.loads(text)
        return cls(SandboxMode(content["mode"]), content["refused"])
