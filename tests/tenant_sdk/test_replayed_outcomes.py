"""How the repeats of a saved step came out on a node, and what the command says about several nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from pharoah.cli.commands import main
from pharoah.replay.judgement import ReplayState, judge
from pharoah.replay.repeat import MAX_OUTCOMES, MIN_REPEATS, repeat
from pharoah.replay.results import NodeResult, RepeatOutcome, read_results, write_results
from pharoah.replay.step_file import StepReader
from pharoah.replay.step_saver import StepSaver


@pytest.fixture
def reader(tmp_path: Path) -> StepReader:
    weight = torch.ones(3)
    saver = StepSaver(tmp_path / "step", 0)
    with saver:
        weight.mul(2).add(1)
    saver.finish()
    return StepReader(tmp_path / "step")


class _Varying(StepReader):
    """A node whose memory gives other bytes in each repeat, from the one with this number on."""

    def __init__(self, path: Path, first: int) -> None:
        super().__init__(path)
        self._numbers, self._first = count(), first

    def load(self, entry: str) -> bytearray:
        content, number = super().load(entry), next(self._numbers)
        if number >= self._first:
            content[:2] = number.to_bytes(2, "big")
        return content


def _clock() -> Callable[[], float]:
    """Each look at it is a second later."""
    seconds = count()
    return lambda: float(next(seconds))


def test_of_many_outcomes_some_are_kept_and_all_are_counted(reader: StepReader, tmp_path: Path) -> None:
    varying = _Varying(reader.path, first=10)
    found = repeat(varying, "n2", 100.0, _clock())
    assert found.repeats > 90
    assert len(found.outcomes) == MAX_OUTCOMES + 1
    assert found.outcomes[0] == RepeatOutcome([one.digest for one in reader.step.computations], 10)
    assert found.outcomes[-1] == RepeatOutcome([], found.repeats - 10 - (MAX_OUTCOMES - 1))
    assert found.steady is None
    on_gpu = replace(found, gpu=3)
    write_results(tmp_path / "result", [found, on_gpu])
    assert read_results(tmp_path / "result", reader.step.id) == [found, on_gpu]
    judged = judge(reader.step, [found, repeat(reader, "n1", 0.0)])
    assert (judged.state, judged.wrong) == (ReplayState.WRONG_NODE, ("n2",))
    assert judged.operators[0].endswith("number 1 of 2")


def test_all_repeats_are_kept_where_they_do_not_vary(reader: StepReader) -> None:
    found = repeat(reader, "n2", 0.0)
    assert found.outcomes == [RepeatOutcome([one.digest for one in reader.step.computations], MIN_REPEATS)]


def _command(reader: StepReader, *others: NodeResult) -> list[str]:
    """The replay on the node that has saved the step."""
    paths = []
    for one in others:
        paths.append(str(reader.path.with_name(one.node)))
        write_results(Path(paths[-1]), [one])
    return ["replay", str(reader.path), "--seconds", "0", "--with", *paths]


def test_a_node_that_is_wrong_is_named_also_while_two_others_differ(
    reader: StepReader, capsys: pytest.CaptureFixture[str]
) -> None:
    right = [one.digest for one in reader.step.computations]
    n2 = NodeResult(reader.step.id, "n2", [RepeatOutcome([right[0], "else"], 3)])
    n3 = NodeResult(reader.step.id, "n3", [RepeatOutcome(right, 2), RepeatOutcome(["else", right[1]], 1)])
    assert main(_command(reader, n2, n3)) == 13
    shown = capsys.readouterr().out.splitlines()
    assert shown[-4:] == [
        "n3 computes wrong results: do not use this node, and ask its provider to test it",
        "  first in aten.mul.Tensor, number 1 of 2",
        "two nodes differ: replay the step on a third one of this class",
        "  first in aten.add.Tensor, number 2 of 2",
    ]
    assert main([*_command(reader, n2, n3), "-o", "json"]) == 13
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (found["state"], found["wrong"]) == ("third node needed", ["n3"])
    assert [one.partition(",")[0] for one in found["operators"]] == ["aten.mul.Tensor", "aten.add.Tensor"]
