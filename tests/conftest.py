"""Shared by all tests: our own guard re-raises, nothing of the developer's environment leaks in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pharoah import _guard


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_guard, "RAISE", True)
    for name in list(os.environ):
        if name.startswith("PHAROAH_") or name == "DO_NOT_TRACK":
            monkeypatch.delenv(name)
    yield
