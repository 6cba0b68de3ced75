"""Campaigns whose processes are killed while they run: what is lost, and what is done twice.

One campaign runs on agents, and its provider and agents are killed. Another one runs on a Ray cluster of several nodes
on this machine (`ray_kills`), and nodes of that cluster and its provider are killed. All processes are real. The kills
are SIGKILL, at drawn moments, and what was killed is started again at once, as a service manager does it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from evaluation.environments import ray_python
from evaluation.figures import Figures
from evaluation.learning.killed_campaigns import BETWEEN_SECONDS, KilledCampaign, below, killed_campaign, read_killed
from evaluation.pages import ROOT
from tests.harness.processes import ProcessScope
from tests.harness.site import Site, node_profiles, running_site

NODES = ("n1", "n2")
"""Two nodes of one configuration, each with a core of its own."""


class _Size(NamedTuple):
    """How much is done."""

    agent_kills: int
    """How often the provider and agents are killed."""
    agent_repeats: int
    ray_kills: int
    """How often Ray nodes and the provider are killed."""
    ray_repeats: int


FULL, QUICK = _Size(10, 24, 10, 72), _Size(3, 10, 2, 24)


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Kill until so many kills are done, wait for the ends of both campaigns, and count their results."""
    size = QUICK if arguments.quick else FULL
    campaigns = {
        "agents": _on_agents(arguments.seed, size.agent_kills, size.agent_repeats),
        "Ray": _on_ray(arguments.seed, size.ray_kills, size.ray_repeats),
    }
    ended = all(one.state == "done" for one in campaigns.values())

    def each(name: str) -> str:
        return ", ".join(f"{getattr(one, name):g} of {one.works} on {where}" for where, one in campaigns.items())

    lost, repeated = (sum(getattr(one, name) for one in campaigns.values()) for name in ("lost", "repeated"))
    orphans = [orphan for one in campaigns.values() for orphan in one.orphans]
    kills = [f"on {where} {one.summary}" for where, one in campaigns.items()]
    states = [f"{one.state} on {where} after {one.seconds:.0f} s" for where, one in campaigns.items()]
    left = min(one.left_at_last_kill for one in campaigns.values())
    figures.add(
        "campaign_resume_kills",
        sum(sum(one.killed.values()) for one in campaigns.values()),
        interval="; ".join(kills),
    )
    figures.add("campaign_resume_works", sum(one.works for one in campaigns.values()), interval=", ".join(states))
    figures.add("campaign_resume_works_left_at_last_kill", left, "> 0", left > 0, each("left_at_last_kill"))
    figures.add("campaign_resume_lost", lost, "0", lost == 0 and ended, each("lost"))
    figures.add("campaign_resume_repeated", repeated, "0", repeated == 0, each("repeated"))
    figures.add("campaign_resume_orphans", len(orphans), "0", not orphans, "; ".join(orphans))


def _on_agents(seed: int, kills: int, repeats: int) -> KilledCampaign:
    rng = random.Random(seed)
    profiles = {name: profile for name, profile in node_profiles().items() if name in NODES}
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder), profiles) as site:
        return killed_campaign(site, repeats, [], lambda: _kill(site, rng), kills)


def _kill(site: Site, rng: random.Random) -> tuple[str, list[psutil.Process]]:
    time.sleep(rng.uniform(*BETWEEN_SECONDS))
    victim = rng.choice(["provider", *NODES])
    children = below(site.pid(victim))
    site.kill(victim)
    if victim == "provider":
        site.start_provider()
        return "provider", children
    site.start_agent(victim)
    return "agent", children


def _on_ray(seed: int, kills: int, repeats: int) -> KilledCampaign:
    """In an environment with Ray. Raises RuntimeError when it does not end well."""
    command = [ray_python(), "-m", "evaluation.learning.ray_kills", str(seed), str(kills), str(repeats)]
    with ProcessScope() as scope:
        job = scope.own(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        output, _ = job.communicate()
    if job.returncode:
        raise RuntimeError(f"the campaign on Ray ended with status {job.returncode}:\n{output}")
    *before, result = output.strip().splitlines()
    print("\n".join(before), flush=True)
    return read_killed(result)
