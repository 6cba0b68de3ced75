"""Files that people hand to each other are data: whatever they say, no reader runs, loads, opens or sets anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.harness.hostile_files import Traps, controls, hostile_files
from tests.harness.readers import CONTROL
from tests.harness.reading_child import read_apart


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler")
def test_no_file_causes_an_event_that_a_good_file_does_not(tmp_path: Path) -> None:
    """One process reads all; its audit hook is the oracle, which sees the two files that a control runs."""
    traps = Traps.set_up(tmp_path / "traps")
    orders = [*controls(tmp_path / "files", traps), *hostile_files(tmp_path / "files", traps, seed=1, each=1)]
    for order, reading in zip(orders, read_apart(tmp_path, orders, traps.environment), strict=True):
        is_control, sprung = order.reader == CONTROL, traps.sprung()
        assert sprung is is_control, order.what
        assert bool(reading.events) is is_control, (order.what, reading.events)
        assert is_control or not reading.internal, (order.what, reading.error)
