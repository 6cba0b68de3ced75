"""Ceilings: what is measured is what is said to be measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pharoah.cost.ceilings import read_measured_ceilings
from pharoah_archetypes.kinds import computing, kind_of, kinds
from pharoah_benchmarks import ceilings
from pharoah_protocol.ceilings import read_ceilings

WITHOUT_FORMULA = {"attention", "attention_backward", "recurrent", "recurrent_backward"}
"""torch counts nothing for these on a CPU."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Several threads on cores that other tests use would mostly wait for each other, and use the cores for that."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_cases_do_as_many_operations_as_they_say() -> None:
    found = [case for case in ceilings.cases("cpu", torch.float32) if case.kind in computing() - WITHOUT_FORMULA]
    assert len(found) > 15
    for case in found:
        with FlopCounterMode(display=False) as counter:
            for call in case.calls:
                call()
        assert counter.get_total_flops() == case.work * len(case.calls), case


def test_a_measurement_can_be_read_and_has_all_kinds(monkeypatch: object) -> None:
    monkeypatch.setattr(ceilings, "SECONDS_PER_CASE", 0.0)  # type: ignore[attr-defined]
    monkeypatch.setattr(ceilings, "ROWS", (8, 16))  # type: ignore[attr-defined]
    found = read_measured_ceilings("here", read_ceilings(ceilings.ceilings("cpu")))
    assert set(found.curves) == set(kinds())
    assert set(found.curves["product"]) == {"float32", "bfloat16"}


def test_sizes_after_a_slow_call_are_left_out_but_every_kind_has_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor without instructions for bfloat16."""
    times = {"small": 1e-3, "small backward": 1e-3, "slow": 3.0, "not needed": 9.0}
    calls = {name: partial(str, name) for name in times}
    ran = Counter[str]()

    def took(measured: tuple[partial[str]], count: int, device: str) -> float:
        ran[measured[0]()] += count
        return times[measured[0]()] * count

    monkeypatch.setattr(ceilings, "_took", took)
    kinds = ("a", "a_backward", "a", "a_backward")
    cases = (ceilings.Case(kind, 1.0, (call,)) for kind, call in zip(kinds, calls.values(), strict=True))
    curves: ceilings.Curves = defaultdict(lambda: defaultdict(list))
    ceilings._measure(cases, "cpu", curves, "bfloat16")
    found = {kind: [seconds for _, seconds in points["bfloat16"]] for kind, points in curves.items()}
    assert found == {"a": [1e-3, 3.0], "a_backward": [1e-3]}
    assert ran["slow"] == 2 and ran["not needed"] == 0


def test_cases_run_the_operators_of_their_kind(monkeypatch: object) -> None:
    monkeypatch.setattr(ceilings, "ROWS", (8,))  # type: ignore[attr-defined]
    for case in ceilings.cases("cpu", torch.float32):
        with _Names() as names:  # type: ignore[no-untyped-call]
            for call in case.calls:
                call()
        assert case.kind in {kind_of(name) for name in names.seen}, case


class _Names(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.seen.add(str(func).rpartition(".")[0])
        return func(*args, **(kwargs or {}))
