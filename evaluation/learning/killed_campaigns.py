"""What campaigns have in common whose processes are killed: their plan, and what is lost and done twice at the end."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from tests.harness.processes import command_line
from tests.harness.site import Site

BETWEEN_SECONDS = (3.0, 9.0)
"""A kill comes so long after the one before: within a cell, between two, and while a provider is still starting."""
MAX_SECONDS = 1_500.0
ORPHAN_SECONDS = 10.0
"""Children of what was killed must be gone by then."""
PLAN = """
name = "kills"
repeats = {repeats}
limit_seconds = 60
[[workload]]
name = "gpt"
steps = 4
settings = {{ batch = 2, length = 128 }}
vary = {{ attention = ["flash", "math"], dtype = ["float32", "bfloat16"] }}
[[workload]]
name = "mlp"
steps = 4
vary = {{ optimizer = ["adamw/forloop", "sgd/foreach"], width = [64, 256] }}
"""


@dataclass(frozen=True)
class KilledCampaign:
    """What came of a campaign whose processes were killed."""

    killed: dict[str, int]
    """What was killed, and how often."""
    state: str
    works: int
    left_at_last_kill: int
    lost: int
    """Works without a result."""
    repeated: int
    """Results beyond the first of a work."""
    orphans: list[str]
    """Processes that have outlived those which had started them."""
    seconds: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def summary(self) -> str:
        """For the interval of a figure."""
        return " and ".join(f"{count} {what}{'s' * (count > 1)}" for what, count in sorted(self.killed.items()))


def killed_campaign(
    site: Site, repeats: int, options: list[str], kill: Callable[[], tuple[str, list[psutil.Process]]], kills: int
) -> KilledCampaign:
    """Run the plan, kill so often, and count at the end.

    `options`: of `campaign run`. `kill` waits for its moment, kills something, starts it again, and gives its kind with
    the processes that had been below it.
    """
    plan = site.folder / "kills.toml"
    plan.write_text(PLAN.format(repeats=repeats))
    began, killed, orphans = time.monotonic(), Counter[str](), list[str]()
    operator = site.operator("campaign", "run", str(plan), *options)
    while not any(row["done"] for row in site.listing("campaigns")):
        if operator.poll() is not None or time.monotonic() - began > MAX_SECONDS:
            raise RuntimeError(f"the campaign did not begin; logs are in {site.folder}: {site.log('provider')[-800:]}")
        time.sleep(0.2)
    for _ in range(kills):
        kind, children = kill()
        killed[kind] += 1
        _, alive = psutil.wait_procs(children, timeout=ORPHAN_SECONDS)
        orphans += [f"child of a killed {kind}: {command_line(child.pid)[:200]}" for child in alive]
    left = sum(work["state"] == "waiting" for work in site.listing("campaign-works"))
    # The command followed the provider that was killed first; the campaign goes on without it.
    if operator.poll() is None:
        operator.terminate()
    operator.wait()
    state = _ended(site, began)
    works, cells = site.listing("campaign-works"), site.listing("cells")
    results = Counter((cell["block"], cell["cell"]) for cell in cells)
    planned = [work for work in works if work["kind"] != "baseline" and work["state"] != "moved"]
    return KilledCampaign(
        killed=dict(killed),
        state=state["state"],
        works=len(planned),
        left_at_last_kill=left,
        lost=sum(
            work["state"] != "done" or not results[f"{state['id']}/{work['block']}", work["cell"]] for work in planned
        ),
        repeated=sum(results.values()) - len(results),
        orphans=orphans,
        seconds=time.monotonic() - began,
    )


def _ended(site: Site, began: float) -> dict[str, Any]:
    """The campaign when it has ended. Raises TimeoutError when it goes on for too long."""
    while (state := site.listing("campaigns")[0])["state"] == "running":
        if time.monotonic() - began > MAX_SECONDS:
            raise TimeoutError(f"the campaign did not end within {MAX_SECONDS:g} s: {state}")
        time.sleep(1.0)
    return state


def read_killed(text: str) -> KilledCampaign:
    """Read what `to_json` wrote."""
    return KilledCampaign(**json.loads(text))


def below(pid: int) -> list[psutil.Process]:
    """All processes that descend from one."""
    return psutil.Process(pid).children(recursive=True)
