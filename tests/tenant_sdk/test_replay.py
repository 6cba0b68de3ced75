"""A saved step computes the same bits again, and wrong results are found and named."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from pharoah.cli.commands import main
from pharoah.replay.judgement import Judgement, ReplayState, judge
from pharoah.replay.repeat import repeat
from pharoah.replay.results import NodeResult, RepeatOutcome
from pharoah.replay.save_step import SAVE_AFTER_STEP, SaveStep
from pharoah.replay.step_file import Computation, NodeClass, SavedStep, StepFileError, StepReader, Switches
from pharoah.replay.step_saver import StepSaver
from pharoah_system.files import AtomicFile


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def _models() -> dict[str, tuple[nn.Module, torch.Tensor]]:
    attention = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    convolution = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    lookup = nn.Sequential(nn.Embedding(10, 8), nn.LSTM(8, 8))
    lookup.forward = lambda x: lookup[1](lookup[0](x))[0]  # type: ignore[method-assign]
    return {
        "attention with dropout": (attention, torch.randn(2, 5, 16)),
        "convolution": (convolution, torch.randn(2, 3, 8, 8)),
        "embedding and recurrence": (lookup, torch.randint(10, (4, 3))),
        "bfloat16": (nn.Linear(8, 8).bfloat16(), torch.randn(4, 8).bfloat16()),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Callable[[nn.Module, torch.Tensor], StepReader]:
    def save(model: nn.Module, batch: torch.Tensor) -> StepReader:
        optimizer = torch.optim.AdamW(model.parameters())
        _step(model, optimizer, batch)
        saver = StepSaver(tmp_path / "step", 0)
        with saver:
            _step(model, optimizer, batch)
        saver.finish()
        return StepReader(tmp_path / "step")

    return save


@pytest.mark.parametrize("name", _models())
def test_a_step_computes_the_same_bits_again(saved: Callable[[nn.Module, torch.Tensor], StepReader], name: str) -> None:
    reader = saved(*_models()[name])
    result = repeat(reader, "n2", 0.0)
    assert result.repeats == 3
    assert result.steady == [one.digest for one in reader.step.computations]
    assert any(one.operator.startswith("aten.") and one.digest for one in reader.step.computations)
    assert judge(reader.step, [result]).state is ReplayState.EQUAL


def test_the_saved_operators_end_in_the_weights_that_the_job_has(
    saved: Callable[[nn.Module, torch.Tensor], StepReader],
) -> None:
    """The digest of the last change of the weights is that of the model of the job."""
    from pharoah.replay.digests import digest_of

    model = nn.Linear(8, 8, bias=False)
    reader = saved(model, torch.randn(4, 8))
    assert digest_of([model.weight]) in {one.digest for one in reader.step.computations}


@given(st.data())
def test_any_flipped_bit_of_any_tensor_changes_the_digest(data: st.DataObject) -> None:
    from pharoah.replay.digests import digest_of

    kind = data.draw(st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.int64]))
    start, size = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 40))
    whole = torch.arange(start + size, dtype=torch.int64).to(kind)
    before = digest_of([whole[start:]])
    assert digest_of([whole[start:].clone()]) == before
    content = whole[start:].view(torch.uint8)
    content[data.draw(st.integers(0, content.numel() - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert digest_of([whole[start:]]) != before


def test_tensors_and_their_order_change_the_digest() -> None:
    from pharoah.replay.digests import digest_of

    one, two = torch.arange(5), torch.arange(5) + 1
    found = [digest_of(tensors) for tensors in ([one, two], [two, one], [one], [one, one], [one, torch.zeros(0)])]
    assert len(set(found)) == 5
    long = torch.zeros((1 << 20) + 3, dtype=torch.int64)
    before = digest_of([long])
    long[-1] = 1
    assert digest_of([long]) != before


def test_a_flipped_bit_in_the_file_is_found(
    saved: Callable[[nn.Module, torch.Tensor], StepReader], tmp_path: Path
) -> None:
    reader = saved(nn.Linear(8, 8), torch.randn(4, 8))
    with zipfile.ZipFile(tmp_path / "step") as archive, zipfile.ZipFile(tmp_path / "other", "w") as changed:
        for entry in archive.namelist():
            content = bytearray(archive.read(entry))
            if entry == "loads/1":
                content[0] ^= 1
            changed.writestr(entry, bytes(content))
    found = judge(reader.step, [repeat(StepReader(tmp_path / "other"), "n2", 0.0)])
    assert found.state is ReplayState.THIRD_NODE_NEEDED


def test_the_file_is_for_its_owner_only_and_nothing_else_stays(
    saved: Callable[[nn.Module, torch.Tensor], StepReader], tmp_path: Path
) -> None:
    saved(nn.Linear(2, 2), torch.randn(2, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["step"]
    assert (tmp_path / "step").stat().st_mode & 0o777 == 0o600


def test_a_step_that_cannot_be_saved_leaves_no_file_and_the_job_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = StepSaver(tmp_path / "step", 0)
    with saver:
        sparse = torch.eye(3).to_sparse()
        product = torch.sparse.mm(sparse, torch.ones(3, 3))
    saver.finish()
    assert torch.equal(product, torch.ones(3, 3))
    assert list(tmp_path.iterdir()) == []
    assert "is not saved" in caplog.text


def test_a_file_that_cannot_grow_is_not_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weight, (soft, hard) = torch.ones(1 << 18), resource.getrlimit(resource.RLIMIT_FSIZE)
    saver = StepSaver(tmp_path / "step", 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, hard))  # as a full disk does, in the middle of a storage
    try:
        with saver:
            weight.mul(2)
        saver.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert "is not saved" in caplog.text and "File too large" in caplog.text


def test_what_a_killed_job_has_left_goes_and_what_another_job_writes_stays(tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path / "step")], capture_output=True, check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 1
    step = tmp_path / "step"
    with AtomicFile(step, delete_abandoned=True) as one, AtomicFile(step, delete_abandoned=True) as other:
        assert {path.name for path in tmp_path.iterdir()} == {one.scratch.name, other.scratch.name}


_KILLED = """
import os, signal, sys
from pathlib import Path
from pharoah_system.files import AtomicFile
new = AtomicFile(Path(sys.argv[1]), delete_abandoned=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("owner", "mode"), [(65534, 0o600), (0, 0o620), (0, 0o606)])
def test_a_step_of_others_is_not_replayed_unless_it_is_trusted(
    saved: Callable[[nn.Module, torch.Tensor], StepReader], tmp_path: Path, owner: int, mode: int
) -> None:
    saved(nn.Linear(2, 2), torch.randn(2, 2))
    path = tmp_path / "step"
    if os.geteuid() == 0:
        os.chown(path, owner, 0)
    elif owner:
        pytest.skip("only root can give a file away")
    path.chmod(mode)
    with pytest.raises(StepFileError, match="--trust"):
        StepReader(path)
    assert StepReader(path, trust=True).step.computations


def test_a_job_that_ends_in_mid_step_leaves_no_file_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save = SaveStep(str(tmp_path / "step"))
    assert save.has_completed(SAVE_AFTER_STEP) and save.active
    torch.ones(3).mul(2)
    assert list(tmp_path.iterdir())
    save.drop()
    assert not save.active and list(tmp_path.iterdir()) == []
    assert "the step is not saved" in caplog.text and "before the end of its step 6" in caplog.text


def test_a_job_that_ends_before_the_step_that_is_saved_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save = SaveStep(str(tmp_path / "step"))
    assert not save.has_completed(SAVE_AFTER_STEP - 1)
    save.drop()
    save.drop()
    assert [one.getMessage() for one in caplog.records] == [
        f"no step is saved in {tmp_path / 'step'}: no optimizer of this job has begun a step 6"
    ]
    SaveStep("").drop()
    assert len(caplog.records) == 1


def test_a_mode_of_the_script_on_top_ends_the_saving_and_step_times_are_taken_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save = SaveStep(str(tmp_path / "step"))
    assert save.has_completed(SAVE_AFTER_STEP)
    with _OwnMode():
        torch.ones(3).mul(2)
        assert save.active, "this step took longer"
        assert save.has_completed(SAVE_AFTER_STEP + 1)
        assert not save.active
        assert "a dispatch mode of the script lies on top" in caplog.text
        assert save.has_completed(SAVE_AFTER_STEP + 2)
    assert save.has_completed(SAVE_AFTER_STEP + 3)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert not save.has_completed(SAVE_AFTER_STEP + 4)
    save.drop()
    assert len(caplog.records) == 1 and list(tmp_path.iterdir()) == []


class _OwnMode(TorchDispatchMode):
    """A mode of the script."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_another_class_of_nodes_is_refused(saved: Callable[[nn.Module, torch.Tensor], StepReader]) -> None:
    reader = saved(nn.Linear(2, 2), torch.randn(2, 2))
    object.__setattr__(reader.step, "node_class", NodeClass("1.0", "another", ""))
    with pytest.raises(StepFileError, match="different classes"):
        repeat(reader, "n2", 0.0)


STEP = SavedStep(
    "id", "n1", 0, NodeClass("2", "cpu", ""), Switches(1, "highest", False),
    [Computation(f"aten.op{at}", [], {}, [], digest) for at, digest in enumerate("abc")],
)  # fmt: skip


def _result(node: str, *runs: tuple[str, int], gpu: int | None = None) -> NodeResult:
    return NodeResult("id", node, [RepeatOutcome(list(digests), count) for digests, count in runs], gpu)


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([_result("n2", ("abc", 5))], Judgement(ReplayState.EQUAL)),
        ([_result("n2", ("abd", 5))], Judgement(ReplayState.THIRD_NODE_NEEDED, (), ("aten.op2, number 3 of 3",))),
        (
            [_result("n2", ("abd", 5)), _result("n3", ("abd", 5))],
            Judgement(ReplayState.WRONG_NODE, ("n1",), ("aten.op2, number 3 of 3",)),
        ),
        (
            [_result("n1", ("abc", 5)), _result("n2", ("axc", 5)), _result("n3", ("abc", 5))],
            Judgement(ReplayState.WRONG_NODE, ("n2",), ("aten.op1, number 2 of 3",)),
        ),
        (
            [_result("n1", ("abc", 4), ("abd", 1)), _result("n2", ("abc", 5))],
            Judgement(ReplayState.WRONG_NODE, ("n1",), ("aten.op2, number 3 of 3",)),
        ),
        (
            [_result("n1", ("xbc", 5)), _result("n2", ("xbc", 5))],
            Judgement(ReplayState.WRONG_ONCE, ("n1",), ("aten.op0, number 1 of 3",)),
        ),
        (
            [_result("n1", ("abc", 2), ("abd", 1)), _result("n2", ("abc", 2), ("abx", 1))],
            Judgement(ReplayState.NOT_REPRODUCIBLE, (), ("aten.op2, number 3 of 3",)),
        ),
        (
            [_result("n1", ("abc", 5)), _result("n2", ("abd", 5)), _result("n3", ("abc", 4), ("xbc", 1))],
            Judgement(ReplayState.THIRD_NODE_NEEDED, ("n3",), ("aten.op0, number 1 of 3", "aten.op2, number 3 of 3")),
        ),
        (
            [_result("n1", ("abc", 5), gpu=0), _result("n1", ("abc", 4), ("abd", 1), gpu=1)],
            Judgement(ReplayState.WRONG_NODE, ("n1 gpu1",), ("aten.op2, number 3 of 3",)),
        ),
        (
            [_result("n1", ("abd", 5), gpu=0), _result("n1", ("abd", 5), gpu=1)],
            Judgement(ReplayState.WRONG_ONCE, ("n1",), ("aten.op2, number 3 of 3",)),
        ),
    ],
)
def test_the_node_in_the_minority_is_named(results: list[NodeResult], expected: Judgement) -> None:
    assert judge(STEP, results) == expected


SCRIPT = """
import os, sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(8):
    model(torch.randn(2, 4)).sum().backward()
    if step == 5:  # the one that is saved
        if not (child := os.fork()):
            sys.exit()  # its finalizers must not write into the file, nor print
        os.waitpid(child, 0)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_job_without_a_log_says_on_standard_error_that_no_step_is_saved(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("range(8)", "range(3)"))
    step = tmp_path / "step"
    command = [sys.executable, "-m", "pharoah", "run", "--step-file", str(step), "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert f"pharoah  no step is saved in {step}: no optimizer" in done.stderr
    assert not step.exists()


def test_a_job_that_forks_saves_a_step_and_the_command_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    step, result = str(tmp_path / "step"), str(tmp_path / "result")
    command = [sys.executable, "-m", "pharoah", "run", "--step-file", step, "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "ignored" not in done.stderr
    replay = ["replay", step, "--seconds", "0"]
    assert main([*replay, "--node", "n1", "--out", result]) == 0
    assert main([*replay, "--node", "n2", "--with", result]) == 0
    assert "all results are equal" in capsys.readouterr().out
    assert main([*replay, "--node", "n1", "--with", result]) == 2  # the same node twice
    assert main(["replay", result]) == 2
    assert "not a saved step" in capsys.readouterr().err
