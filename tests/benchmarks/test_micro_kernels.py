"""Kernels of micro-benchmarks: right and wrong answers, pauses, files that are deleted, and orders that are refused."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pharoah_benchmarks.micro import GROUP as MICRO_GROUP
from pharoah_benchmarks.micro import (
    MICRO_BENCHMARKS,
    Answer,
    Check,
    CheckedKernel,
    Kernel,
    MeasureOrder,
    NotPossible,
    Peer,
    _measure,
)
from pharoah_benchmarks.micro._measure import Timer, _repeat, measure
from pharoah_benchmarks.micro_kernels import together
from pharoah_benchmarks.micro_kernels.files import CHUNK_BYTES, FileRead, FileWritten, FileWrittenAndRead
from pharoah_benchmarks.micro_kernels.loading import Loading
from pharoah_benchmarks.micro_kernels.memory import Patterns
from pharoah_benchmarks.micro_kernels.numbers import same_everywhere
from pharoah_benchmarks.micro_kernels.operators import Product
from pharoah_benchmarks.micro_kernels.together import Communication, Operation
from pharoah_protocol.answer_digests import DIGEST, software_of
from pharoah_protocol.vocabulary import DeviceKind
from tests.harness.plugins import write_plugin

ALONE = [one.name for one in MICRO_BENCHMARKS if one.device is DeviceKind.CPU and one.need is None]


def order_of(name: str, **changes: object) -> MeasureOrder:
    return MeasureOrder(**{"benchmark": name, "repeats": 2, "limit_seconds": 60.0, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALONE)
def test_each_benchmark_of_one_node_measures_and_is_right(name: str, tmp_path: Path) -> None:
    answer = measure(order_of(name, scratch_folder=str(tmp_path)))
    assert len(answer.seconds) == 2 and min(answer.seconds) > 0
    assert answer.correct is (None if name in ("gemm", "memory") else True)
    assert list(tmp_path.iterdir()) == [], "files have no name"


def test_a_reproduced_result_has_one_digest_in_all_processes() -> None:
    order = order_of("reproducibility").to_json()
    here, again = (Answer.from_json(line) for line in child([order, order]))
    (other,) = (Answer.from_json(line) for line in child([order]))
    assert here.correct and len(here.digest) == 64
    assert here.digest == again.digest == other.digest


def test_the_numbers_of_all_machines_are_those_of_the_generator() -> None:
    """Computed with integers of Python, which have no type and no overflow."""
    expected = []
    for number in range(5, 105):
        for _ in range(3):
            number = ((number ^ (number >> 13)) * 1103515245 + 12345) % 2**31
        expected.append((number >> 7) / 2**24 - 0.5)
    made = same_everywhere(100, device="cpu", dtype="float32", start=5)
    assert made.tolist() == expected
    many = same_everywhere(1 << 16, device="cpu", dtype="float32").double()
    assert abs(many.mean()) < 0.005 and abs(many.var() - 1 / 12) < 0.002, "as if drawn evenly from -0.5 to 0.5"


FLIPPING = """
import torch
from pharoah_benchmarks.faults.bit_flip import _flip
from pharoah_benchmarks.micro import MicroBenchmark, Noise, Placement, Resource
from pharoah_protocol.vocabulary import DeviceKind

CALLS = []


def product(a, b):
    result = torch.mm(a, b)
    CALLS.append(1)
    if len(CALLS) == 7:
        _flip(result, 11, 31)  # the lowest bit of a float32
    return result


def build(_):
    from pharoah_benchmarks.micro_kernels.reproducibility import Reproduced
    return Reproduced("cpu", 32, 4, product)


ENTRY = MicroBenchmark(
    name="flipped", measures="a core that flips one bit; size: rows", resource=Resource.COMPUTE,
    device=DeviceKind.CPU, dtype="float32", size=32, noise=Noise(log_ratio_sd=0.2, source="a test"),
    placement=Placement.EXCLUSIVE, repeats=5, limit_seconds=5.0, build=build, selected=False,
)
"""


def test_one_flipped_bit_is_a_wrong_answer_and_no_time(tmp_path: Path) -> None:
    write_plugin(tmp_path, MICRO_GROUP, FLIPPING)
    few, many = child([order_of("flipped", repeats=count).to_json() for count in (4, 4)], str(tmp_path))
    flipped, healthy = Answer.from_json(few), Answer.from_json(many)
    assert flipped.correct is False and flipped.seconds == () and flipped.error == ""
    assert healthy.correct is True and len(healthy.seconds) == 4, "the bit was flipped once"


def test_one_wrong_word_of_a_pattern_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Patterns("cpu", 1 << 12)
    for _ in range(6):
        kernel()
    assert kernel.check().correct
    write = kernel._write

    def faulty() -> None:
        write()
        kernel._words[17] ^= 1 << 40

    monkeypatch.setattr(kernel, "_write", faulty)
    kernel()
    monkeypatch.undo()
    kernel()
    assert not kernel.check().correct


def test_the_patterns_set_and_clear_every_bit_of_every_word() -> None:
    kernel = Patterns("cpu", 8 * 128)
    was_one, was_zero = (torch.zeros(128, dtype=torch.int64) for _ in range(2))
    for _ in range(6):
        kernel()
        was_one |= kernel._words
        was_zero |= ~kernel._words
    assert (was_one == -1).all() and (was_zero == -1).all()


class FakeGpu:
    """The kernel and the context of one of several devices; `current` is the one that is measured."""

    current: FakeGpu | None = None

    def __init__(self, seconds: float, digest: str = "a" * 64, correct: bool = True) -> None:
        self.seconds, self.check_ = seconds, Check(correct, digest)
        self.measured = 0.0

    def __enter__(self) -> None:
        FakeGpu.current = self

    def __exit__(self, *_: object) -> None:
        FakeGpu.current = None


class FakeKernel(CheckedKernel):
    def __init__(self, clock: list[float]) -> None:
        assert FakeGpu.current is not None, "it is built on the device that it measures"
        self.gpu, self.clock = FakeGpu.current, clock

    def __call__(self) -> None:
        assert FakeGpu.current is self.gpu
        self.clock[0] += self.gpu.seconds
        self.gpu.measured += self.gpu.seconds

    def check(self) -> Check:
        return self.gpu.check_


def measured_on(gpus: list[FakeGpu], monkeypatch: pytest.MonkeyPatch) -> Answer:
    clock = [0.0]
    benchmark = replace(MICRO_BENCHMARKS["reproducibility"], name="fake", build=lambda _: FakeKernel(clock))
    monkeypatch.setattr(_measure, "MICRO_BENCHMARKS", {"fake": benchmark})
    monkeypatch.setattr(_measure, "_devices", lambda *_: gpus)
    timer = Timer(lambda: clock[0], lambda seconds: None)
    return measure(order_of("fake", repeats=100, limit_seconds=8.0), timer)


def test_a_node_is_as_its_slowest_gpu_and_all_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [FakeGpu(0.1), FakeGpu(0.7), FakeGpu(0.1), FakeGpu(0.1)]
    answer = measured_on(gpus, monkeypatch)
    assert list(answer.seconds) == pytest.approx([0.7] * 3) and answer.correct and answer.digest == "a" * 64
    assert all(gpu.measured < 8.0 / 4 + 2 * gpu.seconds + 1e-9 for gpu in gpus), "a repeat before, and the last one"


def test_a_node_with_one_gpu_that_gives_a_wrong_answer_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = measured_on([FakeGpu(0.7), FakeGpu(0.1, correct=False), FakeGpu(0.1)], monkeypatch)
    assert answer.correct is False and answer.seconds == ()


def test_gpus_that_compute_different_numbers_have_a_digest_of_no_healthy_node(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy, other = "5" * 16 + "a" * 48, "5" * 16 + "b" * 48
    answer = measured_on([FakeGpu(0.1, healthy), FakeGpu(0.1, other)], monkeypatch)
    assert DIGEST.fullmatch(answer.digest) and software_of(answer.digest) == software_of(healthy)
    assert answer.digest not in (healthy, other)


def test_each_gpu_that_a_process_sees_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    on_gpus, alone = MICRO_BENCHMARKS["gemm_cuda"], order_of("gemm_cuda")
    contexts = _measure._devices(on_gpus, alone)
    assert [getattr(context, "idx", None) for context in contexts] == [0, 1, 2]
    partner = replace(alone, peer=Peer(0, 2, "host:1"))
    assert len(_measure._devices(on_gpus, partner)) == len(_measure._devices(MICRO_BENCHMARKS["gemm"], alone)) == 1


def test_a_measurement_with_a_partner_that_cannot_begin_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setattr(together, "PARTNER_SECONDS", 0.2)
    with pytest.raises(RuntimeError, match="allocate"):
        Communication(Peer(0, 2, f"{tmp_path}/meet"), "cpu", Operation.ALL_REDUCE, 1 << 62)
    assert not torch.distributed.is_initialized()
    with pytest.raises(Exception, match=r"[Tt]imeout|refused|timed out"):
        Communication(Peer(1, 2, "localhost:1"), "cpu", Operation.ALL_REDUCE, 1 << 10)
    assert not torch.distributed.is_initialized() and os.environ["GLOO_SOCKET_IFNAME"] == "eth7"


def test_a_wrong_product_is_found() -> None:
    kernel = Product("cpu", "float32", 64)
    kernel()
    assert kernel.check().correct
    kernel._out[3, 4] = 32.0
    assert not kernel.check().correct


@pytest.mark.parametrize("kind", [FileWritten, FileRead, FileWrittenAndRead])
def test_a_disk_that_returns_other_bytes_is_found(kind: type, tmp_path: Path) -> None:
    kernel = kind(tmp_path, 2 * CHUNK_BYTES)
    try:
        kernel()
        assert kernel.check().correct
        kernel._content = bytes([kernel._content[0] ^ 1]) + kernel._content[1:-1] + bytes([kernel._content[-1] ^ 1])
        kernel._read()
        assert not kernel.check().correct
    finally:
        kernel.close()
    assert list(tmp_path.iterdir()) == []


def cached_pages(file: int) -> int:
    """How many pages of a file the kernel holds in its cache (mincore(2))."""
    libc = ctypes.CDLL(None, use_errno=True)
    with mmap.mmap(file, 0) as content:
        found = (ctypes.c_ubyte * -(-len(content) // mmap.PAGESIZE))()
        begin = ctypes.c_char.from_buffer(content)
        failed = libc.mincore(ctypes.byref(begin), ctypes.c_size_t(len(content)), found)
        del begin  # else the file stays mapped
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


class WatchedLoader:
    """Notes how much of the file is in the cache when a pass begins."""

    def __init__(self, kernel: Loading) -> None:
        self.kernel, self.loader, self.cached = kernel, kernel._loader, list[int]()

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.cached.append(cached_pages(self.kernel._file))
        return iter(self.loader)


def test_each_pass_of_the_data_loader_reads_its_file_from_the_disk(tmp_path: Path) -> None:
    kernel = Loading(tmp_path, 32)
    try:
        assert cached_pages(kernel._file), "it was just written"
        os.posix_fadvise(kernel._file, 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_pages(kernel._file):
            pytest.skip("this file system is in memory")
        kernel._loader = watched = WatchedLoader(kernel)
        for _ in range(3):
            kernel()
            assert cached_pages(kernel._file), "it was read through the cache"
        assert watched.cached == [0, 0, 0] and kernel.check().correct
    finally:
        kernel.close()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="missing: No such file or directory; name another folder"):
        FileRead(tmp_path / "missing", CHUNK_BYTES)
    with pytest.raises(NotPossible, match="MiB are free"):
        FileRead(tmp_path, 1 << 60)


def test_a_killed_measurement_leaves_no_file(tmp_path: Path) -> None:
    """The file has no name from the beginning, so nobody needs to delete it."""
    code = (
        "import os, signal, sys; from pathlib import Path; from pharoah_benchmarks.micro_kernels.files import FileRead;"
        f"FileRead(Path(sys.argv[1]), {CHUNK_BYTES}); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)])
    assert done.returncode == -9 and list(tmp_path.iterdir()) == []


def test_remote_storage_needs_a_folder_and_collectives_a_partner(tmp_path: Path) -> None:
    with pytest.raises(NotPossible, match="--remote-folder"):
        measure(order_of("remote_disk"))
    assert measure(order_of("remote_disk", remote_folder=str(tmp_path))).correct
    with pytest.raises(NotPossible, match="needs a partner"):
        measure(order_of("all_reduce"))


class Clock:
    """Time that passes when a kernel works or the loop sleeps."""

    def __init__(self) -> None:
        self.now = self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def kernel(self, seconds: float) -> Kernel:
        def work() -> None:
            self.now += seconds

        return work

    def timer(self) -> Timer:
        return Timer(lambda: self.now, self.sleep)


@given(duty=st.floats(0.01, 1.0), repeats=st.integers(1, 50), each=st.floats(0.001, 0.3), limit=st.floats(0.01, 5.0))
def test_a_measurement_works_for_no_more_than_its_share_of_the_time(
    duty: float, repeats: int, each: float, limit: float
) -> None:
    clock = Clock()
    order = order_of("gemm", repeats=repeats, limit_seconds=limit, duty=duty)
    seconds = _repeat(clock.kernel(each), order, clock.timer())
    assert 1 <= len(seconds) <= repeats and seconds == pytest.approx([each] * len(seconds))
    assert sum(seconds) < limit + each + 1e-9, "the repeat that passes the limit is the last one"
    worked = each * (len(seconds) + 1)  # with the repeat that does not count
    assert worked / (worked + clock.slept) == pytest.approx(duty)


class Released(CheckedKernel):
    """A kernel that fails, and counts how often it was closed."""

    closed = 0

    def __call__(self) -> None:
        raise RuntimeError("the disk is gone")

    def close(self) -> None:
        Released.closed += 1


def test_a_kernel_that_fails_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = replace(MICRO_BENCHMARKS["gemm"], name="released", build=lambda _: Released())
    monkeypatch.setattr(_measure, "MICRO_BENCHMARKS", {"released": benchmark})
    with pytest.raises(RuntimeError, match="the disk is gone"):
        measure(order_of("released"))
    assert Released.closed == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"repeats": 0}, "repeats: 0"),
        ({"repeats": True}, "repeats: True"),
        ({"limit_seconds": float("inf")}, "Infinity is no number"),
        ({"duty": 0.001}, "duty: 0.001"),
        ({"duty": "1"}, "duty: '1'"),
        ({"remote_folder": "here"}, "remote_folder: 'here'"),
        ({"speed": 3}, "speed: not a field"),
        ({"peer": {"rank": 0}}, "peer: expected an object"),
        ({"peer": {"rank": 2, "size": 2, "rendezvous": "h:1"}}, "peer.rank: 2"),
        ({"peer": {"rank": 0, "size": 1, "rendezvous": "h:1"}}, "peer.size: 1"),
        ({"peer": {"rank": 0, "size": 2, "rendezvous": "h"}}, "peer.rendezvous: 'h'"),
        ({"peer": {"rank": 0, "size": 2, "rendezvous": "h:99999"}}, "peer.rendezvous: 'h:99999'"),
    ],
)
def test_a_bad_order_is_answered_with_the_field(change: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError) as error:
        MeasureOrder.from_json(json.dumps({"benchmark": "gemm", "repeats": 1, "limit_seconds": 1.0, **change}))
    assert named in str(error.value)


def test_the_child_goes_on_after_a_bad_order() -> None:
    answers = [Answer.from_json(line) for line in child(["[]", "no json", order_of("gemm").to_json()])]
    assert "expected an object" in answers[0].error and "not JSON" in answers[1].error
    assert len(answers[2].seconds) == 2


def child(orders: list[str], python_path: str = "") -> Iterator[str]:
    """The answers of one child that measures."""
    done = subprocess.run(
        [sys.executable, "-m", "pharoah_benchmarks.micro"],
        input="".join(f"{order}\n" for order in orders),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **({"PYTHONPATH": python_path} if python_path else {})},
    )
    return iter(done.stdout.splitlines())
