"""The model of CUDA's caching allocator, against the sizes torch documents and laws of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah.cost import cuda_allocator

MIB = 1 << 20


@pytest.mark.parametrize(
    ("sizes", "reserved"),
    [
        ([1], 2 * MIB),
        ([MIB] * 2, 2 * MIB),
        ([MIB + 1], 20 * MIB),
        ([9 * MIB, 9 * MIB], 20 * MIB),
        ([10 * MIB], 10 * MIB),
        ([10 * MIB + 1], 12 * MIB),
        ([19 * MIB, 1], 22 * MIB),
    ],
)
def test_segments_have_the_sizes_torch_documents(sizes: list[int], reserved: int) -> None:
    assert cuda_allocator.most_reserved(sizes) == reserved


def test_what_is_free_is_joined_and_used_again() -> None:
    assert cuda_allocator.most_reserved([8 * MIB, 8 * MIB, -1, -2, 16 * MIB]) == 20 * MIB
    assert cuda_allocator.most_reserved([8 * MIB, 8 * MIB, -1, 16 * MIB]) == 36 * MIB


def test_a_full_device_takes_back_what_is_free_before_it_gives_up() -> None:
    assert cuda_allocator.most_reserved([30 * MIB, -1, 40 * MIB], capacity=40 * MIB) == 40 * MIB
    with pytest.raises(cuda_allocator.OutOfMemory, match="no memory for 41,943,040 bytes beside 31,457,280"):
        cuda_allocator.most_reserved([30 * MIB, 40 * MIB], capacity=40 * MIB)


@st.composite
def lives(draw: st.DrawFn) -> list[int]:
    events: list[int] = []
    alive: list[int] = []
    made = 0
    for _ in range(draw(st.integers(1, 60))):
        if alive and draw(st.booleans()):
            events.append(-alive.pop(draw(st.integers(0, len(alive) - 1))))
        else:
            made += 1
            alive.append(made)
            events.append(draw(st.integers(1, 40 * MIB)))
    return events


@given(lives())
def test_no_more_is_allocated_than_reserved_and_exactly_that_capacity_does(events: list[int]) -> None:
    sizes, now, most = [0], 0, 0
    for event in events:
        sizes += [event] if event > 0 else []
        now += event if event > 0 else -sizes[-event]
        most = max(most, now)
    reserved = cuda_allocator.most_reserved(events)
    assert most <= reserved <= cuda_allocator.most_reserved(events, capacity=reserved)
