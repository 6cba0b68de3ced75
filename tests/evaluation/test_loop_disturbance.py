"""What micro-benchmarks cost the steps beside them, from the step times of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.loop.disturbance import _joined
from evaluation.loop.full_information import slowdown_in
from evaluation.loop.step_times import Span
from pharoah_protocol.reports import SKIPPED_STEPS

STEP = 0.1
"""Seconds of a usual step."""


def steps_of_job(path: Path, slow: dict[Span, float], kinds: dict[Span, str] | None = None) -> Path:
    """The step times of a job of two minutes, with stretches in which steps take a multiple of the usual time."""
    lines, at = ["0 1 usual"] * SKIPPED_STEPS, 0.0
    while at < 120:
        took = STEP * next((ratio for span, ratio in slow.items() if span.since <= at < span.until), 1.0)
        kind = next((kind for span, kind in (kinds or {}).items() if span.since <= at < span.until), "usual")
        at += took
        lines.append(f"{at} {took} {kind}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_steps_in_a_span_are_compared_with_those_near_it(tmp_path: Path) -> None:
    order = Span(60.0, 64.0)
    steps = steps_of_job(tmp_path / "steps", {Span(59.9, 64.2): 1.5})
    assert slowdown_in(steps, order).median == pytest.approx(1.5)


def test_steps_beside_other_orders_are_not_compared_with(tmp_path: Path) -> None:
    """Orders that fill most of the time near each other would else be compared with each other."""
    order = Span(60.0, 64.0)
    others = [Span(32.0, 58.0), Span(66.0, 92.0)]
    steps = steps_of_job(tmp_path / "steps", {Span(31.9, 58.2): 1.5, Span(59.9, 64.2): 1.5, Span(65.9, 92.2): 1.5})
    assert slowdown_in(steps, order).median == pytest.approx(1.0)
    assert slowdown_in(steps, order, [order, *others]).median == pytest.approx(1.5)


def test_steps_of_another_kind_are_not_compared_with(tmp_path: Path) -> None:
    longer = Span(50.0, 70.0)
    steps = steps_of_job(tmp_path / "steps", {longer: 2.0}, {longer: "longer"})
    assert slowdown_in(steps, Span(60.0, 64.0)).median == pytest.approx(1.0)


def test_orders_that_follow_each_other_at_once_are_one() -> None:
    orders = [Span(9.0, 12.0), Span(1.0, 3.0), Span(3.5, 5.0), Span(6.5, 7.0)]
    assert _joined(orders) == [Span(1.0, 5.0), Span(6.5, 7.0), Span(9.0, 12.0)]
