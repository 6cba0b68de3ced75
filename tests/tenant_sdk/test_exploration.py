"""Scripts that branch on values which a dry run does not have: both ways are followed."""

from __future__ import annotations

import contextlib
import threading

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun.exploration import (
    MAX_BRANCHES,
    MAX_VISITS,
    DataDependentBranch,
    Explorer,
    UnknownValues,
)
from tests.tenant_sdk.conftest import DryRunner

TRAIN = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def loss():
    return model(torch.randn(4, 8)).pow(2).mean()
"""
STEPS = "for _ in range(3):\n    loss().backward()\n    optimizer.step()\n"
SAME = "both ways make the same step"


@pytest.mark.parametrize(
    ("branch", "line"),
    [
        ("if loss() > 0: pass\n", 7),
        ("if loss().item() > 0.5: pass\n", 7),
        ("if min(loss().item(), 3.0) < 2: print('better')\n", 7),
        (
            "best = 1e9\nif sum(loss().item() for _ in range(3)) / 3 < best: torch.save(best, 'best.pt')\n",
            8,
        ),
        ("losses = torch.zeros(2)\nlosses[0] = loss().item()\nif losses.mean() < 0.3: print('good')\n", 9),
        ("if torch.tensor([loss().item()]).max().item() > 9: raise SystemExit('diverged')\n", 7),
        ("import math\nif math.exp(loss().item()) > 50: print('high')\n", 8),
        ("counted = (torch.randn(64, 8) @ model[0].weight > 0).sum().item()\nif counted > 3: print('many')\n", 8),
        ("while loss().item() > 1e-3: model.eval()\n", 7),
        ("assert loss().item() < 100\n", 7),
    ],
)
def test_a_branch_that_leads_to_the_same_step_does_not_matter(
    dry_run_script: DryRunner, branch: str, line: int
) -> None:
    plain, branched = dry_run_script(TRAIN + STEPS), dry_run_script(TRAIN + branch + STEPS)
    assert branched.fingerprint.archetype == plain.fingerprint.archetype
    assert any(note.startswith(f"train.py:{line}: ") and note.endswith(SAME) for note in branched.assumptions)
    assert plain.assumptions == ()


def test_a_branch_that_leads_to_another_step_is_unknown_and_lists_the_ways(dry_run_script: DryRunner) -> None:
    branch = "if loss().item() > 0.5:\n    model.append(torch.nn.Softmax(-1))\n"
    with pytest.raises(
        UnknownReason,
        match=r"if train\.py:7 is true: .* softmax bwd: grad; if train\.py:7 is false: fwd: gemm act gemm bwd",
    ):
        dry_run_script(TRAIN + branch + STEPS)


def test_a_way_without_a_step_does_not_make_the_answer_unknown(dry_run_script: DryRunner) -> None:
    found = dry_run_script(TRAIN + "if loss().item() > 0.5: raise ValueError('the data is broken')\n" + STEPS)
    assert found.fingerprint.archetype == dry_run_script(TRAIN + STEPS).fingerprint.archetype


def test_a_way_that_never_ends_costs_its_share_of_the_time_only(dry_run_script: DryRunner) -> None:
    endless = "if loss().item() > 0.5:\n    while True: pass\n"
    found = dry_run_script(TRAIN + endless + STEPS, seconds=8.0)
    assert found.fingerprint.archetype == dry_run_script(TRAIN + STEPS).fingerprint.archetype
    assert any("took too long" in note for note in found.assumptions)


def test_many_branches_are_followed_within_bounds(dry_run_script: DryRunner) -> None:
    many = "".join(f"if loss().item() > {at}: print({at})\n" for at in range(40))
    found = dry_run_script(TRAIN + many + STEPS)
    assert found.fingerprint.archetype == dry_run_script(TRAIN + STEPS).fingerprint.archetype
    assert 0 < sum(note.endswith(SAME) for note in found.assumptions) <= MAX_BRANCHES


def test_values_for_other_libraries_are_made_up_and_stated(dry_run_script: DryRunner) -> None:
    metric = "scores = model(torch.randn(4, 8)).detach().cpu().numpy()\nprint(scores.mean(), scores.tolist())\n"
    found = dry_run_script(TRAIN + metric + STEPS)
    assert "train.py:7: an array of the shape (4, 1) was made up" in found.assumptions
    whole = dry_run_script(TRAIN + "print(list(range(int(loss().item() * 3))))\n" + STEPS)
    assert "train.py:7: a computed value became the whole number 3" in whole.assumptions


def test_constants_are_computed(dry_run_script: DryRunner) -> None:
    """Stochastic depth: rates from a factory function decide about the model."""
    rates = (
        "rates = [rate.item() for rate in torch.linspace(0, 0.2, 3)]\n"
        "dropouts = [torch.nn.Dropout(rate) if rate > 0.0 else torch.nn.Identity() for rate in rates]\n"
        "assert [type(d).__name__ for d in dropouts] == ['Identity', 'Dropout', 'Dropout']\n"
    )
    assert dry_run_script(TRAIN + rates + STEPS).assumptions == ()


def test_a_branch_in_a_thread_ends_the_dry_run() -> None:
    reasons: list[str] = []
    explorer = Explorer(reasons.append, lambda _: None, deadline=0.0)

    def decide() -> None:
        with contextlib.suppress(DataDependentBranch):
            explorer.decide(True, "branches")

    thread = threading.Thread(target=decide)
    thread.start()
    thread.join()
    assert len(reasons) == 1 and "branches in a thread" in reasons[0]


def test_one_line_decides_the_same_until_a_loop_has_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = Explorer(lambda _: None, lambda _: None, deadline=0.0)
    monkeypatch.setattr(explorer, "_both_ways", lambda place, line, plausible: plausible)
    decided = [explorer.decide(True, "branches") for _ in range(MAX_VISITS + 2)]
    assert decided == [True] * MAX_VISITS + [False] * 2


def test_without_exploration_a_branch_ends_the_dry_run() -> None:
    reasons: list[str] = []
    with pytest.raises(DataDependentBranch):
        UnknownValues(reasons.append).decide(True, "branches on a computed value")
    assert "branches on a computed value before its first optimizer step (test_exploration.py" in reasons[0]


def test_an_evaluation_of_many_batches_before_the_first_step_takes_little_time(dry_run_script: DryRunner) -> None:
    """After some equal calls no operator is computed; the result is counted by a hook of a layer."""
    evaluation = (
        "calls = []\n"
        "model[0].register_forward_hook(lambda *_: calls.append(1))\n"
        "with torch.no_grad():\n"
        "    mean = sum(model(torch.randn(4, 8)).mean().item() for _ in range(200)) / 200\n"
        "    other = model(torch.randn(2, 8))\n"
        "assert other.shape == (2, 1)\n"
        "assert len(calls) < 10, len(calls)\n"
        "print(f'{mean:.3f}')\n"
    )
    found = dry_run_script(TRAIN + evaluation + STEPS)
    assert found.fingerprint.archetype == dry_run_script(TRAIN + STEPS).fingerprint.archetype
