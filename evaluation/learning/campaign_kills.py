"""A campaign whose provider and agents are killed while it runs: what is lost, and what is done twice.

All processes are real. The kills are SIGKILL, at drawn moments, and what was killed is started again at once, as a
service manager does it.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from evaluation.figures import Figures
from tests.harness.site import Site, node_profiles, running_site

KILLS, QUICK_KILLS = 20, 4
BETWEEN_SECONDS = (3.0, 9.0)
"""A kill comes so long after the one before: within a cell, between two, and while a provider is still starting."""
NODES = ("n1", "n2")
"""Two nodes of one configuration, each with a core of its own."""
LONGEST_SECONDS = 1_500.0
ORPHAN_SECONDS = 10.0
"""Children of a killed agent must be gone by then."""
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
REPEATS, QUICK_REPEATS = 40, 10


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Kill until so many kills are done, wait for the end of the campaign, and count its results."""
    rng = random.Random(arguments.seed)
    profiles = {name: profile for name, profile in node_profiles().items() if name in NODES}
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder), profiles) as site:
        plan = Path(folder) / "kills.toml"
        plan.write_text(PLAN.format(repeats=QUICK_REPEATS if arguments.quick else REPEATS))
        began = time.monotonic()
        operator = site.operator("campaign", "run", str(plan))
        _wait_until_running(site)
        killed, orphans = _kill(site, rng, QUICK_KILLS if arguments.quick else KILLS)
        left = sum(work["state"] == "waiting" for work in site.listing("campaign-works"))
        # The command followed the provider that was killed first; the campaign goes on without it.
        if operator.poll() is None:
            operator.terminate()
        operator.wait()
        state = _ended(site, began)
        works, cells = site.listing("campaign-works"), site.listing("cells")
    results = Counter((cell["block"], cell["cell"]) for cell in cells)
    planned = [work for work in works if work["kind"] != "baseline" and work["state"] != "moved"]
    lost = sum(work["state"] != "done" or not _result(results, state, work) for work in planned)
    repeated = sum(results.values()) - len(results)
    figures.add(
        "campaign_resume_kills", sum(killed.values()), interval=", ".join(f"{n} {k}" for k, n in killed.items())
    )
    figures.add("campaign_resume_works", len(planned), interval=f"{state['state']}, {time.monotonic() - began:.0f} s")
    figures.add("campaign_resume_works_left_at_last_kill", left, "> 0", left > 0)
    figures.add("campaign_resume_lost", lost, "0", lost == 0 and state["state"] == "done")
    figures.add("campaign_resume_repeated", repeated, "0", repeated == 0)
    figures.add("campaign_resume_orphans", orphans, "0", orphans == 0)


def _result(results: Counter[tuple[str, str]], campaign: dict[str, Any], work: dict[str, Any]) -> bool:
    """Whether a work that is done has a result."""
    return results[f"{campaign['id']}/{work['block']}", work["cell"]] > 0


def _kill(site: Site, rng: random.Random, kills: int) -> tuple[Counter[str], int]:
    """What was killed how often, and how many of its children have outlived it."""
    killed: Counter[str] = Counter()
    orphans = 0
    for _ in range(kills):
        time.sleep(rng.uniform(*BETWEEN_SECONDS))
        victim = rng.choice(["provider", *NODES])
        children = psutil.Process(site.pid(victim)).children(recursive=True)
        site.kill(victim)
        _, alive = psutil.wait_procs(children, timeout=ORPHAN_SECONDS)
        orphans += len(alive)
        killed["provider" if victim == "provider" else "agents"] += 1
        if victim == "provider":
            site.start_provider()
        else:
            site.start_agent(victim)
    return killed, orphans


def _wait_until_running(site: Site) -> None:
    while not any(row["state"] == "running" for row in site.listing("campaigns")):
        time.sleep(0.2)


def _ended(site: Site, began: float) -> dict[str, Any]:
    """The campaign when it has ended. Raises TimeoutError when it goes on for too long."""
    while (state := site.listing("campaigns")[0])["state"] == "running":
        if time.monotonic() - began > LONGEST_SECONDS:
            raise TimeoutError(f"the campaign did not end within {LONGEST_SECONDS:g} s: {state}")
        time.sleep(1.0)
    return state
