"""Shared by all tests: our own guard re-raises, nothing of the developer's environment leaks in."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from pharoah import _guard


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    monkeypatch.setattr(_guard, "RAISE", True)
    for name in list(os.environ):
        if name.startswith("PHAROAH_") or name == "DO_NOT_TRACK":
            monkeypatch.delenv(name)
    monkeypatch.setenv("PHAROAH_STATE_DIR", str(tmp_path_factory.getbasetemp() / "state"))
    yield
