"""A row speaks of what varied in its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pharoah_archetypes import Fingerprint
from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_protocol.vocabulary import Outcome, Rung


def cell(outcome: str = "nan", **settings: str | int) -> list[Trial]:
    """One cell on two nodes."""
    features = {name: str(value) for name, value in settings.items() if isinstance(value, str)}
    length = int(settings.get("length", 128))
    sizes = {"parameters": 1000, "activations": 1000 * length}
    job = Fingerprint("ab" * 16, "12" * 16, "fwd: gemm", features, sizes, {"torch": "2.13.0"})
    one = Trial(
        workload="gpt",
        settings=dict(settings),
        context_id="here",
        device_id="cpu",
        outcome=Outcome(outcome),
        step_seconds=(),
        fingerprint=job.to_json(),
    )
    return [replace(one, node=name) for name in ("a", "b")]


def severities(cells: Sequence[list[Trial]], rung: Rung) -> set[str]:
    rows = learn_incompatibilities([trial for one in cells for trial in one])
    return {row.severity for row in rows if row.rung == rung and row.outcome != "ok"}


def test_sizes_that_failed_speak_of_other_sizes() -> None:
    one, other = cell(length=128, dtype="float16"), cell(length=1024, dtype="float16")
    assert severities([one], Rung.MINOR) == {"info"}, "one size alone"
    assert severities([one, other], Rung.MINOR) == {"warn"}
    worked = cell("ok", length=64, dtype="float16")
    assert severities([one, other, worked], Rung.MINOR) == {"info"}, "another size works"


HALF = {"dtype": "float16"}


@pytest.mark.parametrize(
    ("varied", "severity"),
    [
        ([{}, {"attention": "math"}], "warn"),
        ([HALF, {**HALF, "attention": "math"}], "info"),
        ([HALF, {"attention": "math"}], "warn"),
        ([{"attention": "math"}], "info"),
        ([{}], "info"),
    ],
)
def test_an_architecture_is_warned_about_where_no_setting_may_be_the_cause(
    varied: list[dict[str, str]], severity: str
) -> None:
    cells = [cell(length=length, **settings) for settings in varied for length in (128, 1024)]
    assert severities(cells, Rung.MAJOR) == {severity}


def test_settings_that_are_meant_to_fail_do_not_colour_the_others() -> None:
    failing = [
        cell(length=length, dtype="float16", attention=how) for length in (128, 1024) for how in ("flash", "math")
    ]
    works = cell("ok", length=128, attention="flash")
    assert severities([*failing, works], Rung.MAJOR) == {"info"}
    assert severities([*failing, works], Rung.MINOR) == {"warn"}
