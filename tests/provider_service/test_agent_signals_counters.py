"""Counters that begin again at their width, are reset, or vanish for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pharoah_provider.agent.counter_increments import MAX_GROWTH_BITS, CounterIncrements
from pharoah_provider.agent.signals import Reading, SignalKind
from pharoah_provider.agent.telemetry import Telemetry
from tests.harness.agent_signals import signal_of

WIDTHS = st.sampled_from([32, 64])
GROWTHS = st.lists(st.integers(0, (1 << MAX_GROWTH_BITS) - 1), max_size=30)


@given(bits=WIDTHS, start=st.integers(0, (1 << 64) - 1), growths=GROWTHS)
def test_increments_are_what_was_counted_wherever_the_counter_begins_again(
    bits: int, start: int, growths: list[int]
) -> None:
    counter, total = CounterIncrements(bits), start % (1 << bits)
    assert counter.count_since(total) is None, "nobody knows what was counted before"
    for growth in growths:
        total += growth
        assert counter.count_since(total % (1 << bits)) == growth


@given(bits=WIDTHS, start=st.integers(0, 1 << 31), after=st.integers(0, 1 << 31))
def test_a_counter_that_was_reset_has_counted_what_it_shows(bits: int, start: int, after: int) -> None:
    counter = CounterIncrements(bits)
    counter.count_since(start)
    assert counter.count_since(after) == (after - start if after >= start else after)


@given(bits=WIDTHS, raws=st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=50))
def test_no_increment_is_below_zero_whatever_a_device_shows(bits: int, raws: list[int]) -> None:
    counter = CounterIncrements(bits)
    assert all(found is None or found >= 0 for found in map(counter.count_since, raws))


@given(seen=st.lists(st.tuples(st.integers(0, 1000), st.booleans()), min_size=1, max_size=50))
def test_what_is_counted_while_a_counter_is_gone_comes_when_it_is_back(seen: list[tuple[int, bool]]) -> None:
    """The device grows by each number; it can be read only where the flag is set."""
    total, readable = 0, list[bool]()
    shown = list[Reading]()
    signal = signal_of(name="errors", kind=SignalKind.COUNTER, unit="errors", read=lambda: shown)
    telemetry, counted, raws = Telemetry(lambda: 1.0, [signal]), 0.0, list[int]()
    for growth, there in seen:
        total += growth
        readable.append(there)
        shown[:] = [Reading(total, "gpu0")] if there else []
        if there:
            raws.append(total)
        counted += sum(sample.values["errors"] for sample in telemetry.sample(stays=True))
    assert counted == (raws[-1] - raws[0] if raws else 0)


def test_two_readers_do_not_take_increments_from_each_other() -> None:
    count = [10]
    signal = signal_of(name="errors", kind=SignalKind.COUNTER, unit="errors", read=lambda: [Reading(count[0])])
    first = Telemetry(lambda: 1.0, [signal])
    second = first.for_another_reader()
    assert first.sample(stays=True) == second.sample(stays=True) == []
    count[0] = 13
    assert [reader.sample(stays=True)[0].values for reader in (first, second)] == [{"errors": 3}, {"errors": 3}]
