"""What the bits of a step depend on beside its operators is saved with it, and is the same in a replay."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pharoah.replay.digests import DENORMAL, FLAGS, FLUSH_DENORMAL, switch, switches
from pharoah.replay.judgement import ReplayState, judge
from pharoah.replay.repeat import repeat
from pharoah.replay.step_file import NodeClass, StepFileError, StepReader
from pharoah.replay.step_saver import StepSaver


def _saved(path: Path) -> StepReader:
    """A step that multiplies a number that is very small."""
    small = torch.full((4,), DENORMAL)
    saver = StepSaver(path, 0)
    with saver:
        small.mul(1)
    saver.finish()
    return StepReader(path)


@pytest.fixture
def flushed() -> Iterator[None]:
    torch.set_flush_denormal(True)
    yield
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("flushed")
def test_a_replay_has_the_switches_of_the_step_and_gives_them_back(tmp_path: Path) -> None:
    reader = _saved(tmp_path / "step")
    torch.set_flush_denormal(False)
    before = switches()
    assert reader.step.switches == replace(before, flags={**before.flags, FLUSH_DENORMAL: True})
    assert judge(reader.step, [repeat(reader, "n2", 0.0)]).state is ReplayState.EQUAL
    assert switches() == before


@pytest.mark.parametrize("name", [*FLAGS, FLUSH_DENORMAL])
def test_each_flag_is_read_and_switched(name: str) -> None:
    before = switches()
    other = replace(before, flags={**before.flags, name: not before.flags[name]})
    with switch(other):
        assert switches() == other
    assert switches() == before


def test_a_variable_that_libraries_read_once_is_part_of_the_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # nothing of this step is computed on a GPU
    reader = _saved(tmp_path / "step")
    assert reader.step.node_class.variables == {"ONEDNN_DEFAULT_FPMATH_MODE": "BF16"}
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    assert repeat(reader, "n2", 0.0).steady
    monkeypatch.delenv("ONEDNN_DEFAULT_FPMATH_MODE")
    with pytest.raises(StepFileError, match=r"ONEDNN_DEFAULT_FPMATH_MODE 'BF16' and ''.* with the same variables"):
        repeat(reader, "n2", 0.0)


def test_the_command_computes_with_the_variables_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    _saved(tmp_path / "step")
    monkeypatch.delenv("ONEDNN_DEFAULT_FPMATH_MODE")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    command = [sys.executable, "-m", "pharoah", "replay", str(tmp_path / "step"), "--seconds", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "all results are equal" in done.stdout


def test_a_class_names_each_of_its_differences() -> None:
    mine = NodeClass("2", "cpu", "", {"A": "1", "B": "2"})
    assert mine.difference(replace(mine, torch="3", variables={"A": "1", "C": "4"})) == (
        "torch '2' and '3', B '2' and '', C '' and '4'"
    )
    assert mine.difference(mine) == ""
