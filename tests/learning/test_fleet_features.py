"""Features of whole fleets are those that an agent computes sample by sample."""

from __future__ import annotations

from math import log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.fleet_features import fleet_features
from pharoah_protocol.signal_features import FEATURES, SignalHistory, SignalKind, Spans

SPANS = Spans(short=3, long=7)


def one_by_one(kind: SignalKind, samples: list[float | None], spans: Spans = SPANS) -> np.ndarray:
    history, found = SignalHistory(kind, spans), []
    for sample in samples:
        history.add(sample)
        found.append(list(history.features().values()))
    return np.array(found)


def of_fleet(kind: SignalKind, *units: list[float | None], spans: Spans = SPANS) -> np.ndarray:
    samples = np.array([[nan if sample is None else sample for sample in unit] for unit in units])
    return fleet_features(samples, kind, spans)


counts = st.lists(st.one_of(st.none(), st.integers(0, 10_000).map(float)), min_size=1, max_size=40)
levels = st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=1, max_size=40)


@given(counts, st.integers(2, 9), st.integers(0, 9))
def test_counters_are_the_same(samples: list[float | None], short: int, more: int) -> None:
    spans = Spans(short, short + more)
    kind = SignalKind.COUNTER
    assert of_fleet(kind, samples, spans=spans)[0] == pytest.approx(one_by_one(kind, samples, spans), abs=1e-9)


@given(levels, st.integers(2, 9), st.integers(0, 9))
def test_gauges_are_the_same(samples: list[float | None], short: int, more: int) -> None:
    spans, kind = Spans(short, short + more), SignalKind.GAUGE
    scale = max([1.0, *(abs(sample) for sample in samples if sample is not None)])
    expected = one_by_one(kind, samples, spans)
    assert of_fleet(kind, samples, spans=spans)[0] == pytest.approx(expected, rel=1e-6, abs=1e-8 * scale)


def test_a_gauge_that_rises_by_one_each_time_has_the_slope_one() -> None:
    level, slope, excess, outlook = one_by_one(SignalKind.GAUGE, [float(at) for at in range(20)])[-1]
    assert (level, slope, excess, outlook) == pytest.approx((18.0, 3.0, 12.0, 25.0))


def test_a_counter_that_was_quiet_exceeds_its_past() -> None:
    recent, past, excess, _ = one_by_one(SignalKind.COUNTER, [0.0] * 10 + [7.0])[-1]
    assert (recent, past, excess) == pytest.approx((log(8), log(8), log(8)))


def test_a_counter_that_always_counts_does_not_exceed_its_past() -> None:
    assert one_by_one(SignalKind.COUNTER, [9.0] * 10)[-1][2] == pytest.approx(0.0)


def test_a_counter_that_counts_one_more_each_time_is_to_count_more_in_the_span_that_comes() -> None:
    """The line through 0, 1, ..., 19 is at 26 seven samples after the last one."""
    assert one_by_one(SignalKind.COUNTER, [float(at) for at in range(20)])[-1][3] == pytest.approx(log(1 + 7 * 26))


def test_a_counter_that_falls_is_to_count_nothing_and_never_less() -> None:
    assert one_by_one(SignalKind.COUNTER, [float(at) for at in range(20, 0, -1)])[-1][3] == 0.0


@pytest.mark.parametrize(("kind", "seen"), [(SignalKind.COUNTER, log(1 + 6)), (SignalKind.GAUGE, 2.0)])
def test_until_half_of_the_long_span_is_measured_the_outlook_is_what_is_seen(kind: SignalKind, seen: float) -> None:
    assert one_by_one(kind, [None, 1.0, 2.0, 3.0])[-1][3] == pytest.approx(seen)
    assert one_by_one(kind, [1.0, 2.0, 3.0, 4.0])[-1][3] > seen + 1


def test_without_samples_all_features_are_zero() -> None:
    for kind in SignalKind:
        assert not one_by_one(kind, [None, None]).any() and not of_fleet(kind, [None, None]).any()
        assert list(SignalHistory(kind, SPANS).features()) == list(FEATURES[kind])


def test_units_do_not_touch_each_other() -> None:
    first, second = [1.0, None, 5.0, 2.0], [9.0, 9.0, None, None]
    together = of_fleet(SignalKind.GAUGE, first, second)
    assert together[1] == pytest.approx(of_fleet(SignalKind.GAUGE, second)[0])


@pytest.mark.parametrize("spans", [Spans(1, 5), Spans(6, 5)])
def test_spans_that_cannot_be(spans: Spans) -> None:
    with pytest.raises(ValueError, match="spans: expected 2 <= short <= long"):
        SignalHistory(SignalKind.GAUGE, spans)
