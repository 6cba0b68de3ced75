"""What failures say about the limits of nodes, and how far such evidence reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes import MAX_SIZE_POSITION, Fingerprint, size_class, size_position
from pharoah_learning.context_rule import identity
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.limits import Limit, amount_of, limit_named
from pharoah_learning.release import LearnedRow, NodeKind
from pharoah_learning.table import learn_table
from pharoah_protocol.vocabulary import DeviceKind, Outcome, Severity

GIB = 1 << 30
DEVICE_FACTS = ("device=cpu-a", "isa=avx2")


@pytest.mark.parametrize(
    ("outcome", "detail", "limit"),
    [
        (Outcome.MEMORY, "MemoryError", Limit.MEMORY),
        (Outcome.CRASH, "rank 1: exit status -9", Limit.MEMORY),
        (Outcome.CRASH, "exit status -7", Limit.SHARED_MEMORY),
        (Outcome.ERROR, "unable to open shared memory object </torch_1>: No space left on device (28)",
         Limit.SHARED_MEMORY),
        (Outcome.ERROR, "OSError: [Errno 24] Too many open files: 'x'", Limit.DESCRIPTORS),
        (Outcome.ERROR, "RuntimeError: can't start new thread", Limit.PROCESSES),
        (Outcome.ERROR, "OSError: [Errno 28] No space left on device", Limit.DISK),
        (Outcome.ERROR, "OSError: [Errno 27] File too large", Limit.FILE_SIZE),
        (Outcome.TIMEOUT, "longer than 60 s", Limit.CORES),
        (Outcome.CRASH, "exit status -4", None),
        (Outcome.CRASH, "exit status -11", None),
        (Outcome.NAN, "loss is NaN", None),
        (Outcome.ERROR, "RuntimeError: mat1 and mat2 shapes cannot be multiplied", None),
    ],
)  # fmt: skip
def test_errors_name_their_limit(outcome: Outcome, detail: str, limit: Limit | None) -> None:
    assert limit_named(outcome, detail, DeviceKind.CPU) is limit


def test_memory_of_a_gpu_belongs_to_its_model() -> None:
    detail = "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert limit_named(Outcome.MEMORY, detail, DeviceKind.CUDA) is None
    assert limit_named(Outcome.MEMORY, "MemoryError", DeviceKind.CUDA) is Limit.MEMORY


def test_a_node_that_states_no_limit_counts_as_having_none() -> None:
    assert amount_of(Limit.MEMORY, ("memory_limit=1024", "cpus=2")) == 1024
    for facts in (("memory_limit=0",), ("cpus=2",), ("memory_limit=much",)):
        assert amount_of(Limit.MEMORY, facts) is None


@given(st.integers(1, 2**50), st.integers(1, 2**50))
def test_the_position_of_a_size_grows_within_its_class(parameters: int, activations: int) -> None:
    low = {"parameters": 1 << size_class(parameters), "activations": 1 << size_class(activations)}
    high = {name: 2 * size - 1 for name, size in low.items()}
    at = [size_position(sizes) for sizes in (low, {"parameters": parameters, "activations": activations}, high)]
    assert at[0] == 0 and at == sorted(at) and at[2] <= MAX_SIZE_POSITION


def facts(memory: int, kernel: str = "6.1") -> tuple[str, ...]:
    return tuple(sorted((*DEVICE_FACTS, "cpus=8", f"kernel={kernel}", f"memory_limit={memory}", "threads=8")))


def trials(
    node: str, memory: int, length: int = 1024, kernel: str = "6.1", blocks: int = 5, attention: str = "math"
) -> list[Trial]:
    """A cell needs 3 MiB for each token of its length, however that is computed."""
    job = fingerprint(length, attention)
    failed = memory and length * 3 << 20 > memory
    one = Trial(
        workload="gpt",
        settings={"length": length, "attention": attention},
        context_id=identity(facts(memory, kernel)),
        device_id=identity(DEVICE_FACTS),
        outcome=Outcome.MEMORY if failed else Outcome.OK,
        step_seconds=() if failed else (0.1, 0.1, 0.1),
        fingerprint=job.to_json(),
        own_fingerprints=(job.to_json(),),
        node=node,
        facts=facts(memory, kernel),
        limit=Limit.MEMORY if failed else None,
    )
    return [replace(one, block=f"{number}", trial_id=f"{node} {length} {number}") for number in range(blocks)]


def fingerprint(length: int, attention: str = "math") -> Fingerprint:
    sizes = {"parameters": 1 << 20, "activations": length * 3 << 20}
    return Fingerprint("ab" * 16, "12" * 16, "fwd: gemm", {"attention": attention}, sizes, {"torch": "2.13.0"})


def exact(rows: tuple[LearnedRow, ...], memory: int, kernel: str = "6.1") -> LearnedRow | None:
    """The row about the job in the context of nodes with this limit."""
    context = identity(facts(memory, kernel))
    return next((row for row in rows if (row.group_id, row.rung, row.scope) == (context, "exact", "server")), None)


def small_and_large() -> list[Trial]:
    """Two nodes with a limit that the job exceeds, and two without one."""
    small = [one for node in ("a", "b") for one in trials(node, 2 * GIB)]
    return [*small, *(one for node in ("c", "d") for one in trials(node, 0, blocks=10))]


def test_a_limit_blocks_where_it_is_stated_and_not_on_the_device_model() -> None:
    rows = learn_table(small_and_large(), LeftOut()).rows
    row = exact(rows, 2 * GIB)
    assert row and (row.severity, row.limit, row.failures, row.base_runs) == ("block", Limit.MEMORY, 10, 20)
    assert not [one for one in rows if one.scope == "device" and one.severity in ("warn", "block")]
    other = exact(rows, 0)
    assert other and other.severity == "ok"


def test_a_tighter_limit_is_blocked_before_anything_has_run_there() -> None:
    fleet = [NodeKind(identity(DEVICE_FACTS), facts(memory, "5.15")) for memory in (GIB, 2 * GIB, 4 * GIB, 0)]
    rows = learn_table(small_and_large(), LeftOut(), fleet=fleet).rows
    found = {memory: exact(rows, memory, "5.15") for memory in (GIB, 2 * GIB, 4 * GIB, 0)}
    assert {memory: row.severity for memory, row in found.items() if row} == {GIB: "block", 2 * GIB: "block"}


def test_nodes_of_several_contexts_agree_about_a_limit() -> None:
    seen = [*trials("a", 2 * GIB, kernel="6.1"), *trials("b", GIB, kernel="5.15"), *small_and_large()[10:]]
    rows = learn_table(seen, LeftOut()).rows
    row = exact(rows, GIB, "5.15")
    assert row and row.severity == "block", "a node with more has failed as well"
    assert exact(rows, 2 * GIB) is None, "one node alone has so much, and one node proves nothing"


def test_a_limit_that_is_not_stated_informs() -> None:
    seen = [
        replace(one, facts=facts(0), context_id=identity(facts(0))) if one.limit else one
        for one in small_and_large()[:10]
    ]
    rows = learn_table(seen, LeftOut()).rows
    assert {row.severity for row in rows} == {Severity.INFO}


def test_a_row_about_a_limit_speaks_of_jobs_that_are_as_large_as_those_that_failed() -> None:
    smaller, larger = 800, 1000  # of one size class; only the larger one exceeds the limit
    seen = [one for node in ("a", "b") for length in (smaller, larger) for one in trials(node, 3000 << 20, length)]
    row = exact(learn_table(seen, LeftOut()).rows, 3000 << 20)
    assert row is None or row.severity == "ok", "1,000 tokens fit as well"
    seen = [one for node in ("a", "b") for length in (smaller, larger) for one in trials(node, 2800 << 20, length)]
    row = exact(learn_table(seen, LeftOut()).rows, 2800 << 20)
    assert row and row.severity == "warn" and row.least_size == size_position(fingerprint(larger).sizes)
