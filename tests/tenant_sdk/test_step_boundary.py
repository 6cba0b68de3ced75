"""Which step of a script stands for its training: not the first, and with several optimizers the third."""

from __future__ import annotations

from collections.abc import Callable

from pharoah_archetypes import Fingerprint
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner


def test_what_only_the_first_step_does_is_no_structure(dry: Callable[..., Fingerprint]) -> None:
    source = TRAIN + "table = torch.nn.functional.conv1d(torch.randn(1, 1, 9), torch.randn(1, 1, 3))\n"
    loop = "for _ in range(9):\n    model(torch.randn(4, 8)).pow(2).mean().backward()\n    optimizer.step()\n"
    assert "conv" not in dry(source + loop).grammar
    assert "conv" in dry(source + STEP).grammar, "with one step there is nothing to compare with"


def test_what_only_the_second_step_does_is_no_structure_and_costs_memory(dry_run_script: DryRunner) -> None:
    step = f"optimizer.zero_grad()\n{STEP}"
    plain = dry_run_script(TRAIN + step * 4)
    for context in ("torch.no_grad()", "torch.enable_grad()"):
        evaluation = f"with {context}: model(torch.randn(5000, 8)).softmax(-1)\n"
        evaluated = dry_run_script(TRAIN + step + evaluation + step * 3)
        assert evaluated.fingerprint == plain.fingerprint
        assert evaluated.cost.flops == plain.cost.flops
        assert max(evaluated.cost.memory.events) >= 5000 * 8 * 4 > max(plain.cost.memory.events)


def test_an_update_before_the_first_gradient_is_no_step(dry: Callable[..., Fingerprint]) -> None:
    assert dry(TRAIN + "optimizer.step()\n" + STEP * 4) == dry(TRAIN + STEP * 4)


def test_several_optimizers_are_one_step(dry: Callable[..., Fingerprint]) -> None:
    source = """
import torch
maker = torch.nn.Linear(4, 8)
judge = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(12, 1))
first, second = torch.optim.Adam(judge.parameters()), torch.optim.SGD(maker.parameters(), lr=0.1)
for _ in range(9):
    judge(maker(torch.randn(2, 4))[:, None]).mean().backward()
    first.step()
    (-judge(maker(torch.randn(2, 4))[:, None]).tanh().mean()).backward()
    second.step()
"""
    found = dry(source)
    assert found.features["optimizer"] == "adam/forloop+sgd/forloop"
    assert "act" in found.grammar, "what lies between the two optimizers belongs to the step"


def test_with_several_optimizers_the_third_step_counts(dry: Callable[..., Fingerprint]) -> None:
    """The second step shows a sample of what the model makes, as scripts for generative models do."""
    source = TRAIN.replace("optimizer =", "other = torch.optim.SGD(model[2].parameters(), lr=0.1)\noptimizer =")
    step = f"{STEP}model(torch.randn(4, 8)).mean().backward()\nother.step()\n"
    shown = "torch.nn.functional.conv1d(torch.randn(1, 1, 9), torch.randn(1, 1, 3))\n"
    assert dry(source + step + shown + step * 3) == dry(source + step * 4)


def test_a_failure_after_the_first_step_is_named(dry_run_script: DryRunner) -> None:
    assumed = dry_run_script(TRAIN + STEP + "raise ValueError('no more data')\n").assumptions
    assert [sentence.partition(":")[0] for sentence in assumed] == ["only the first step was seen"]
    assert "no more data" in assumed[0]
