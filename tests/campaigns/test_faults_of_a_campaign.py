"""A campaign with faults from its file to the listing: real provider, real agent, real cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.site import node_profiles, running_site

PLAN = """
name = "faults"
repeats = 1
[[workload]]
name = "mlp"
steps = 2
settings = { width = 8 }
[degrade]
workload = "mlp"
settings = { width = 64, batch = 16 }
seconds = 4
onset_seconds = 2
healthy = 2
[[degrade.fault]]
name = "loader_stall"
doses = [0.2]
[[degrade.fault]]
name = "nan"
doses = [0]
"""


@pytest.mark.timeout(300)
def test_a_campaign_shows_what_telemetry_saw_of_its_faults(tmp_path: Path) -> None:
    profiles = {name: profile for name, profile in node_profiles().items() if name == "n1"}
    with running_site(tmp_path, profiles) as site:
        plan = tmp_path / "faults.toml"
        plan.write_text(PLAN)
        assert site.operator("campaign", "run", str(plan)).wait() == 0
        rows = {row["fault"]: row for row in site.listing("fault-responses")}
    assert rows.keys() == {"loader_stall", "nan", "none"}
    stalled, poisoned, control = rows["loader_stall"], rows["nan"], rows["none"]
    assert (stalled["dose"], stalled["outcomes"]) == (0.2, "ok 1") and stalled["slowdown"] > 3
    assert poisoned["outcomes"] == "nan 1"
    assert control["runs"] >= 2 and "nan" not in control["outcomes"]
    assert "step_seconds 1" in stalled["moved"]  # what the node computes is that of other tests as well
