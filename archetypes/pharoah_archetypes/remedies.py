"""Remedies: what a tenant can do, as public data by code. Unknown codes (a newer provider) read as nothing."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources


@cache
def remedies() -> dict[int, str]:
    """All remedies by code."""
    data = tomllib.loads(resources.files(__package__).joinpath("remedies.toml").read_text())
    return {int(code): text for code, text in data["remedies"].items()}


def remedy(code: int) -> str:
    """The text of a remedy; empty for a code that this release does not know."""
    return remedies().get(code, "")
