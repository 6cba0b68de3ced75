"""Campaigns on a site whose processors are busy: which works have no result at the end.

Provider, two agents and all cells are real processes on this machine, and eight busy loops run beside them. Three
campaigns run: one of tens of works, some of which are meant to fail, whose provider and one of whose agents are killed
once each; one of a single cell; and one all of whose cells fail, which is cancelled after its first cell. Each is
resumed when it has ended, as an operator would do it who reads the list of what is not run.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.busy_loops import busy_loops
from evaluation.figures import Figures
from tests.harness.site import SMALL_MEMORY_BYTES, Site, node_profiles, running_site

LOOPS = 8
NODES = ("n1", "n2")
REPEATS, QUICK_REPEATS = 5, 2
"""Repeats of the large campaign: five cells each, on two nodes of one configuration."""
MAX_SECONDS = 540.0
"""In which all must have ended; 10 minutes are what this part may take."""
MAX_RESUMES = 2
"""How often each campaign is resumed at the most."""
HEADER = """
name = "{name}"
repeats = {repeats}
limit_seconds = 60
"""
CELLS = """
[[workload]]
name = "gpt"
steps = 3
settings = { batch = 2, length = 128 }
vary = { attention = ["flash", "math"] }
[[workload]]
name = "mlp"
steps = 4
vary = { optimizer = ["adamw/forloop", "sgd/foreach"] }
"""
FAILING = """
[[workload]]
name = "mlp"
steps = 4
settings = { width = 20000 }
"""
"""Its matrices have 1.6 GB each, and a node may use 440 MB."""
ONE = """
[[workload]]
name = "mlp"
steps = 4
"""


@dataclass
class _Counted:
    """What came of the campaigns."""

    works: int = 0
    results: Counter[str] = field(default_factory=Counter)
    """Outcome of cells to how many had it."""
    unlisted: int = 0
    """Works without a result that stood in no list with a cause, when their campaign had ended first."""
    causes: Counter[str] = field(default_factory=Counter)
    """Cause to how many works stood in the list with it, whenever a campaign had ended."""
    without_result: int = 0
    """Works that have none after their campaign was resumed."""
    repeated: int = 0
    """Results beyond the first of a work."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Run the campaigns beside the loops, and count the works that are lost."""
    rng, began = random.Random(arguments.seed), time.monotonic()
    repeats = QUICK_REPEATS if arguments.quick else REPEATS
    profiles = {name: {**node_profiles()[name], "memory_limit_bytes": SMALL_MEMORY_BYTES} for name in NODES}
    counted = _Counted()
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder), profiles) as site, busy_loops(LOOPS):
        deadline = began + MAX_SECONDS
        large = HEADER.format(name="large", repeats=repeats) + CELLS + FAILING
        _to_its_end(site, large, "large", lambda: _kill_both(site, rng), counted, deadline)
        one = HEADER.format(name="one", repeats=1) + ONE
        _to_its_end(site, one, "one", lambda: None, counted, deadline)
        failing = HEADER.format(name="failing", repeats=1) + FAILING
        _to_its_end(site, failing, "failing", lambda: _cancel(site, "failing"), counted, deadline)
    lost = counted.unlisted + counted.without_result
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counted.results.items()))
    causes = ", ".join(f"{count} {cause}" for cause, count in sorted(counted.causes.items()))
    figures.add("works_busy", counted.works, interval=f"cells: {outcomes}")
    figures.add(
        "works_lost_busy",
        lost,
        "0",
        lost == 0,
        f"{counted.unlisted} without a cause, {counted.without_result} without a result after resume",
    )
    figures.add("works_not_run_busy", counted.causes.total(), interval=causes or "none was set aside")
    figures.add("works_repeated_busy", counted.repeated, "0", counted.repeated == 0)
    figures.add("busy_campaigns_seconds", time.monotonic() - began, interval=f"beside {LOOPS} busy loops")


def _to_its_end(
    site: Site, text: str, name: str, disturb: Callable[[], None], counted: _Counted, deadline: float
) -> None:
    """Run a campaign, disturb it once it has a result, resume it while results are missing, and count."""
    plan = site.folder / f"{name}.toml"
    plan.write_text(text)
    operator = site.operator("campaign", "run", str(plan))
    _wait(lambda: _row(site, name).get("done", 0) > 0, f"the first result of {name}", deadline)
    disturb()
    _wait(lambda: _row(site, name)["state"] != "running", f"the end of {name}", deadline)
    _stop(operator)
    campaign = _row(site, name)["id"]
    works = _works(site, campaign)
    listed = {work["number"]: work for work in site.listing("works-not-run") if work["campaign"] == campaign}
    missing = [work for work in works if work["state"] != "done"]
    counted.unlisted += sum(
        work["number"] not in listed or not listed[work["number"]]["cause"] or not listed[work["number"]]["remedy"]
        for work in missing
    )
    for _ in range(MAX_RESUMES):
        counted.causes.update(listed[work["number"]]["cause"] for work in missing if work["number"] in listed)
        if not missing:
            break
        operator = site.operator("campaign", "resume", campaign)
        while operator.poll() is None and time.monotonic() < deadline:
            time.sleep(1.0)
        _stop(operator)
        listed = {work["number"]: work for work in site.listing("works-not-run") if work["campaign"] == campaign}
        works = _works(site, campaign)
        missing = [work for work in works if work["state"] != "done"]
    _count(site, campaign, works, counted)


def _count(site: Site, campaign: str, works: list[dict[str, Any]], counted: _Counted) -> None:
    """Count the results of a campaign that is over. A work that is done must have its result stored, once."""
    cells = [cell for cell in site.listing("cells") if cell["block"].startswith(f"{campaign}/")]
    stored = Counter((cell["block"], cell["cell"]) for cell in cells)
    counted.works += len(works)
    counted.results.update(cell["outcome"] for cell in cells)
    counted.repeated += stored.total() - len(stored)
    counted.without_result += sum(
        work["state"] != "done"
        or (work["kind"] != "baseline" and not stored[f"{campaign}/{work['block']}", work["cell"]])
        for work in works
    )


def _works(site: Site, campaign: str) -> list[dict[str, Any]]:
    """The works that count: one that was moved is in the plan once more."""
    works = [work for work in site.listing("campaign-works") if work["campaign"] == campaign]
    return [work for work in works if work["state"] != "moved"]


def _row(site: Site, name: str) -> dict[str, Any]:
    """A campaign by its name; empty before it is planned."""
    return next((row for row in site.listing("campaigns") if row["name"] == name), {})


def _kill_both(site: Site, rng: random.Random) -> None:
    """Kill the provider, and an agent a while after; both are started again at once."""
    site.kill("provider")
    site.start_provider()
    time.sleep(rng.uniform(5.0, 15.0))
    node = rng.choice(NODES)
    site.kill(node)
    site.start_agent(node)


def _cancel(site: Site, name: str) -> None:
    operator = site.operator("campaign", "cancel", _row(site, name)["id"])
    operator.wait()


def _stop(operator: subprocess.Popen[str]) -> None:
    """The display of a campaign may have ended with the provider that was killed."""
    if operator.poll() is None:
        operator.terminate()
    operator.wait()


def _wait(condition: Callable[[], bool], what: str, deadline: float) -> None:
    while not condition():
        if time.monotonic() > deadline:
            print(f"  {what} did not come within {MAX_SECONDS:g} s", flush=True)
            return  # what has no result then counts as lost
        time.sleep(1.0)
