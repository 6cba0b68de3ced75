"""SuperBench results: JSON lines, one for each node, with `benchmark/metric:rank` to a number.

Each benchmark on each node is one run. A run failed when one of its return codes is not 0; its throughput is the mean
over ranks of its first metric with `throughput` in the name.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import fmean

import numpy as np

from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table
from pharoah_provider.superbench import NodeResult, SuperBenchError, read_results

COLUMNS = ("node", "benchmark", "state", "return_code", "metric", "throughput")
_MAP = """
model = "benchmark"
exit_status = "return_code"
throughput = "throughput"
[end_state]
column = "state"
[clusters]
host = "node"
"""


def read(path: Path) -> Table:
    """One row for each benchmark of each node, with the columns `COLUMNS`."""
    try:
        nodes = read_results(path)
    except SuperBenchError as error:
        raise BackfillError(str(error)) from None
    rows = [row for node in nodes for row in _of_node(node)]
    return Table(path, {name: np.array([row[place] for row in rows], dtype=str) for place, name in enumerate(COLUMNS)})


def _of_node(node: NodeResult) -> list[tuple[str, ...]]:
    ranks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, value in node.metrics.items():
        benchmark, slash, metric = name.rpartition("/")
        if slash and value is not None:
            ranks[benchmark][metric.partition(":")[0]].append(float(value))
    return [(node.node, benchmark, *_result(found)) for benchmark, found in ranks.items()]


def _result(metrics: dict[str, list[float]]) -> tuple[str, ...]:
    """End state, return code, name of the metric and throughput of one benchmark."""
    codes = metrics.get("return_code", [0.0])
    failed = next((code for code in codes if code), 0.0)
    name = next((metric for metric in sorted(metrics) if "throughput" in metric), "")
    return "failed" if failed else "ok", str(int(failed)), name, str(fmean(metrics[name])) if name else ""


SOURCE = BackfillSource("superbench", "results of SuperBench, JSON lines with one object for each node", read, _MAP)
