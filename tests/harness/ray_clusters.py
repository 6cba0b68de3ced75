"""Small Ray clusters on one machine, for tests and evaluations (`ray.cluster_utils.Cluster`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OBJECT_STORE_BYTES = 80 << 20
"""Ray's least is 75 MB; cells and their results are some kilobytes."""
HEAD: dict[str, Any] = {
    "num_cpus": 0,
    "object_store_memory": OBJECT_STORE_BYTES,
    "include_dashboard": False,
    # A node that dies is noticed within seconds: by default it takes half a minute.
    "_system_config": {
        "health_check_initial_delay_ms": 1_000,
        "health_check_period_ms": 1_000,
        "health_check_failure_threshold": 5,
    },
}
"""The head has no room for workers: it cannot be killed without ending the cluster."""
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES}
"""A node with room for one worker."""


@contextmanager
def running_cluster(nodes: int) -> Iterator[Any]:
    """A head, and so many nodes with room for one worker each. Needs Ray."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        for _ in range(nodes):
            cluster.add_node(**NODE)
        yield cluster
    finally:
        cluster.shutdown()
