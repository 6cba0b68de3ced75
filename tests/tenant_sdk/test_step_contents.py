"""What a saved step reads is saved as it was, also where something else than an operator of torch has written it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from pharoah.replay.contents import PIECE_BYTES
from pharoah.replay.digests import digest_of
from pharoah.replay.judgement import ReplayState, judge
from pharoah.replay.repeat import repeat
from pharoah.replay.step_file import Load, StepReader
from pharoah.replay.step_saver import StepSaver


def _saved(path: Path, compute: Callable[[], object]) -> StepReader:
    saver = StepSaver(path, 0)
    with saver:
        compute()
    saver.finish()
    return StepReader(path)


def _loads(reader: StepReader) -> int:
    return sum(isinstance(event, Load) for event in reader.step.events)


def _by_an_array(to: Tensor) -> None:
    to.numpy()[...] = 7.0


def _by_a_collective(to: Tensor) -> None:
    """The schema of `c10d.gather_` does not say that it writes."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dist.gather(torch.full_like(to, 7.0), [to])
    finally:
        dist.destroy_process_group()


def _by_resizing(to: Tensor) -> None:
    """As sharded parameters are freed and gathered again: their storage stays, and its memory is another one."""
    size = to.untyped_storage().nbytes()
    to.untyped_storage().resize_(0)
    to.untyped_storage().resize_(size)
    to.numpy()[...] = 7.0


@pytest.mark.parametrize("write", [_by_an_array, _by_a_collective, _by_resizing])
def test_what_is_written_past_the_operators_of_torch_is_content_from_outside(
    tmp_path: Path, write: Callable[[Tensor], None]
) -> None:
    """A replay does not know what the write was, so a healthy node would seem to compute something else."""
    found: list[Tensor] = []

    def compute() -> None:
        received = torch.zeros(5).add_(1)
        write(received)
        found.append(received.mul(2))
        received.add_(1)
        found.append(received.mul(3))

    reader = _saved(tmp_path / "step", compute)
    assert [one[0].item() for one in found] == [14, 24]
    assert judge(reader.step, [repeat(reader, "n2", 0.0)]).state is ReplayState.EQUAL
    digests = {one.digest for one in reader.step.computations}
    assert {digest_of([one]) for one in found} <= digests


def test_of_a_large_buffer_only_what_is_read_is_compared(tmp_path: Path) -> None:
    """A write beside the part that is read needs no new content, and a write in it does."""
    buffer = torch.zeros(3 * PIECE_BYTES, dtype=torch.uint8)
    array, middle = buffer.numpy(), buffer[PIECE_BYTES + 1 : 2 * PIECE_BYTES - 1]

    def compute(written: int) -> None:
        middle.add_(1)
        array[written] = 9
        middle.add_(1)

    for written, loads in ((0, 1), (PIECE_BYTES - 1, 1), (PIECE_BYTES + 1, 2), (2 * PIECE_BYTES - 2, 2)):
        reader = _saved(tmp_path / "step", lambda at=written: compute(at))  # type: ignore[misc]
        assert _loads(reader) == loads, written
        assert judge(reader.step, [repeat(reader, "n2", 0.0)]).state is ReplayState.EQUAL


def test_a_view_reads_nothing(tmp_path: Path) -> None:
    """A buffer that is being received is looked at before its content is there."""
    weight, other = torch.ones(4, 4), torch.ones(4)

    def compute() -> None:
        weight.t().split(1)
        other.add(1)

    assert _loads(_saved(tmp_path / "step", compute)) == 1


def test_numbers_stay_what_they_are_while_only_operators_of_torch_write(tmp_path: Path) -> None:
    """In-place operators, results of several tensors, and results in memory that the script has brought."""
    value, out = torch.ones(6), torch.ones(6)

    def compute() -> None:
        value.mul_(3).add_(1)
        torch.add(value, value, out=out)
        first, second = torch.max(out.view(2, 3), dim=1)
        first.add_(second)
        value[2:4].fill_(5)
        value.add_(out)

    reader = _saved(tmp_path / "step", compute)
    assert _loads(reader) == 2
    assert judge(reader.step, [repeat(reader, "n2", 0.0)]).state is ReplayState.EQUAL
