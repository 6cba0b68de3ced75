"""Errors users meet.

PharoahError
├── SettingsError        a setting that cannot be used; the message names it and where it came from
├── IncompatibleError    register(gate="block") met an incompatible verdict; carries it
└── UnknownReason        why something could not be found out (becomes the reason of an `unknown` verdict)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pharoah._verdict import Verdict


class PharoahError(Exception):
    """Base of all errors of this package."""


class SettingsError(PharoahError):
    """A setting that cannot be read."""


class IncompatibleError(PharoahError):
    """The job was stopped before its first step: `gate="block"` and the verdict is incompatible."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.summary())
        self.verdict = verdict


class UnknownReason(PharoahError):
    """Why something could not be found out. Never leaves `register`: it becomes an `unknown` verdict."""
