"""What `pharoah run` finds out before the launch, and how long it may delay the end."""

from __future__ import annotations

import time

import pytest

from pharoah._verdict import unknown
from pharoah.cli._check import Checked, judge_here
from pharoah.cli._common import ShutdownTime
from pharoah_archetypes.kinds import kinds
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile, check_profile
from tests.tenant_sdk.conftest import DryRunner

CURVES = {kind: {"float32": [[1e3, 1e-6], [1e9, 1e-2]]} for kind in kinds()}
MEASURED = check_profile({"ceilings": {"overhead": 1e-5, "curves": CURVES}})
TRAINING = """
import torch
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(32, 256)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("profile", "is_known"), [(MEASURED, True), (NO_LIMITS, False)])
def test_a_step_is_predicted_where_the_node_was_measured(
    dry_run_script: DryRunner, profile: NodeProfile, is_known: bool
) -> None:
    judged = judge_here(Checked(unknown("a test"), dry_run_script(TRAINING), profile))
    assert (judged.step_seconds > 0) is is_known


def test_all_that_delays_the_end_of_a_job_shares_one_time() -> None:
    shutdown = ShutdownTime(0.2)
    time.sleep(0.05)
    assert shutdown.get_remaining() == pytest.approx(0.2, abs=0.02), "it begins with the first question"
    time.sleep(0.25)
    assert shutdown.get_remaining() == 0.0
