"""A campaign on a Ray cluster whose nodes and whose provider are killed while it runs.

    python -m evaluation.learning.ray_kills SEED KILLS REPEATS

It needs Ray, so that `campaign_kills` starts it in an environment of its own. The cluster is one of several nodes on
this machine: each node has a raylet and workers of its own, all real processes, and its death ends them. The last line
of standard output is the result as JSON.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from evaluation.learning.killed_campaigns import BETWEEN_SECONDS, KilledCampaign, below, killed_campaign
from tests.harness.processes import command_line
from tests.harness.ray_clusters import NODE, running_cluster
from tests.harness.site import Site, running_site

NODES = 3
WORKERS = 2
"""One node is a spare: what a node that dies has left is done there at once."""
PROVIDER_SHARE = 0.25
"""The share of kills that hit the provider."""


def run(seed: int, kills: int, repeats: int) -> KilledCampaign:
    """Kill nodes of a cluster, and the provider, until so many kills are done, and wait for the end."""
    rng = random.Random(f"{seed}/ray")
    with (
        running_cluster(NODES) as cluster,
        tempfile.TemporaryDirectory() as folder,
        running_site(Path(folder), {}) as site,
    ):
        options = ["--executor", "ray", "--address", cluster.address, "--slots", str(WORKERS)]
        options += ["--profile", '{"threads": 1}']
        return killed_campaign(site, repeats, options, lambda: _kill(site, cluster, rng), kills)


def _kill(site: Site, cluster: Any, rng: random.Random) -> tuple[str, list[psutil.Process]]:
    time.sleep(rng.uniform(*BETWEEN_SECONDS))
    if rng.random() < PROVIDER_SHARE:
        children = below(site.pid("provider"))
        site.kill("provider")
        site.start_provider()
        return "provider", children
    # A node that runs workers, where one does: the spare one has nothing to lose.
    nodes = sorted(cluster.worker_nodes, key=lambda node: str(node.node_id))
    busy = [node for node in nodes if _ours(node)]
    node = rng.choice(busy or nodes)
    children = _ours(node)
    cluster.remove_node(node, allow_graceful=False)
    cluster.add_node(**NODE)
    return "Ray node", children


def _ours(node: Any) -> list[psutil.Process]:
    """The fork server of a Ray node, and its cells. Ray itself ends its own processes, some of them after a minute."""
    raylet: int = node.all_processes["raylet"][0].process.pid
    module = "pharoah_benchmarks.campaign.fork_server"
    return [child for child in below(raylet) if module in command_line(child.pid)]


if __name__ == "__main__":
    print(run(*map(int, sys.argv[1:])).to_json(), flush=True)
