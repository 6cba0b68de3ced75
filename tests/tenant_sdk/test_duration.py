"""How long a step takes: ceilings, and what a dry run's cost makes of them."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah.cost.ceilings import read_device_ceilings, read_measured_ceilings
from pharoah.cost.duration import Parts, ceilings_of, duration, operators
from pharoah.cost.findings import operations, size, time_finding
from pharoah.cost.step import Memory, Operation, StepCost, Transfer
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named
from pharoah_archetypes.kinds import kinds
from pharoah_protocol.ceilings import CeilingsError, read_ceilings
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile

NOTHING = Memory(array("q"), "")
POINTS = [[1e3, 1e-6], [1e6, 1e-4], [1e9, 2e-1]]
MEASURED = {"overhead": 1e-5, "curves": {kind: {"float32": POINTS} for kind in kinds()}}
H100 = device_named("NVIDIA H100 80GB HBM3")


def cost(*operations: Operation, transfers: tuple[Transfer, ...] = ()) -> StepCost:
    return StepCost(operations, transfers, NOTHING)


def product(dtype: str, flops: int, moved: int, times: int = 1) -> Operation:
    return Operation("fwd", "aten.mm", dtype, flops, moved, times)


def test_a_curve_passes_its_points_and_goes_on_in_proportion() -> None:
    ceilings = read_measured_ceilings("here", read_ceilings(MEASURED))
    for work, seconds in POINTS:
        assert ceilings.seconds("product", "float32", work) == pytest.approx(seconds)
    assert ceilings.seconds("product", "float32", 3e9) == pytest.approx(3 * 2e-1)
    assert ceilings.seconds("product", "float32", 1.0) == 1e-6, "the least an operator takes"
    assert ceilings.seconds("product", "float32", 0) == 0
    assert ceilings.seconds("product", "int8", 1e6) == pytest.approx(1e-4), "as float32, where nothing is known"


@given(st.lists(st.floats(1, 1e12), min_size=2, max_size=2))
def test_more_work_takes_no_less_time(works: list[float]) -> None:
    less, more = (
        read_measured_ceilings("here", read_ceilings(MEASURED)).seconds("stream", "float32", work)
        for work in sorted(works)
    )
    assert less <= more * (1 + 1e-9)


def test_a_data_sheet_is_a_roofline_for_each_operator() -> None:
    assert H100
    ceilings = read_device_ceilings(H100)
    computes = product("bfloat16", 989 * 10**9, 1000)  # 989e12 a second
    moves = Operation("fwd", "aten.add", "bfloat16", 0, 335 * 10**7, 2)  # 3350e9 a second, twice
    thin = product("bfloat16", 1, 335 * 10**6)
    assert operators(cost(computes, moves, thin), ceilings) == pytest.approx(Parts(0.0, 1e-3 + 1e-4, 2e-3))
    assert operators(cost(Operation("fwd", "aten.view", "bfloat16", 0, 10**9, 5)), ceilings) == Parts(0, 0, 0)


@pytest.mark.parametrize(
    ("letter", "ranks", "times_as_much"), [("AR", 8, 1.75), ("AG", 8, 0.875), ("BC", 8, 1), ("AR", 1, 0)]
)
def test_collectives_are_hidden_until_they_take_longer(letter: str, ranks: int, times_as_much: float) -> None:
    assert H100
    second = 450 * 10**9
    step = cost(product("bfloat16", 989 * 10**12, 0), transfers=(Transfer("bwd", letter, second // 2, ranks, 4),))
    predicted = duration(step, read_device_ceilings(H100))
    assert predicted.communication == pytest.approx(2 * times_as_much)
    assert predicted.seconds == pytest.approx(max(1.0, 2 * times_as_much))
    assert ("it waits for collectives" in time_finding(predicted, step).what) == (times_as_much > 0.5)


def test_measured_parts_count_as_they_were_fitted() -> None:
    step = cost(product("float32", 10**6, 10, times=3), Operation("opt", "aten.add_", "float32", 0, 10**6, 2))
    ceilings = read_measured_ceilings("here", read_ceilings(MEASURED))
    assert operators(step, ceilings) == pytest.approx(Parts(5e-5, 3e-4, 2e-4))
    predicted = duration(step, ceilings, Parts(1.0, 2.0, 3.0))
    assert predicted.seconds == pytest.approx(5e-5 + 6e-4 + 6e-4)
    found = time_finding(predicted, step)
    assert found.severity == "info"
    assert found.what == "a step takes about 1.25 ms on here"


def changed(**changes: Any) -> dict[str, Any]:
    return json.loads(json.dumps({**MEASURED, **changes}))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (7, "an object was expected"),
        ({}, "'curves' is missing; measure again"),
        (changed(overhead=None), "float"),
        (changed(overhead=-1.0), "overhead is -1.0"),
        (changed(curves={**MEASURED["curves"], "stream": {}}), "curves.stream has no float32"),
        (changed(curves={**MEASURED["curves"], "stream": {"float32": [[1, 0]]}}), "curves.stream.float32 .*above zero"),
        (changed(curves={**MEASURED["curves"], "stream": {"float32": [[2, 1], [1, 2]]}}), "not in order of work"),
        (changed(curves={**MEASURED["curves"], "stream": {"float32": "ab"}}), "curves.stream.float32 is not pairs"),
    ],
)
def test_what_is_no_measurement_is_named(data: Any, says: str) -> None:
    with pytest.raises(CeilingsError, match=says):
        read_measured_ceilings("here", read_ceilings(data))


def test_a_nodes_own_measurement_goes_before_the_data_sheet() -> None:
    job = Fingerprint(
        "a", "b", "", {}, {"parameters": 0, "activations": 0}, {"torch": "2.13.0"}, {"gpu": "NVIDIA H100"}
    )
    sheet, own = ceilings_of(job, NO_LIMITS), ceilings_of(job, NodeProfile(ceilings=read_ceilings(MEASURED)))
    assert sheet and not sheet.measured
    assert own and own.measured
    assert ceilings_of(Fingerprint("a", "b", "", {}, {}, {}), NO_LIMITS) is None


@pytest.mark.parametrize(
    ("amount", "bytes_shown", "operations_shown"),
    [
        (0, "0 B", "0 FLOP"),
        (999, "999 B", "999 FLOP"),
        (1 << 20, "1 MiB", "1.05 MFLOP"),
        (10**24, "8.88e+08 PiB", "1e+06 EFLOP"),
    ],
)
def test_amounts_are_shown_with_three_digits(amount: int, bytes_shown: str, operations_shown: str) -> None:
    assert (size(amount), operations(amount)) == (bytes_shown, operations_shown)
