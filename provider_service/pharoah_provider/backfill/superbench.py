"""SuperBench results: JSON lines, one for each node, with `benchmark/metric:rank` to a number.

Each benchmark on each node is one run. A run failed when one of its return codes is not 0; its throughput is the mean
over ranks of its first metric with `throughput` in the name. What its monitor measured beside the benchmarks is no run,
and values that are no numbers are left out. The results do not say what a node is, so that nothing can be compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import numpy as np

from pharoah_provider.backfill._source import BackfillError, BackfillSource, Table
from pharoah_provider.superbench import NodeResult, SuperBenchError, read_results

COLUMNS = ("node", "benchmark", "model", "state", "return_code", "metric", "throughput")
MONITOR = "monitor"
_RANK = re.compile(r"(:\d+|/\d+)$")
"""The rank at the end of a metric, which SuperBench writes in both ways."""
_MAP = """
model = "model"
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
        nodes = read_results(path, skips_others=True)
    except SuperBenchError as error:
        raise BackfillError(str(error)) from None
    rows = [row for node in nodes for row in _list_node_rows(node)]
    return Table(
        path, {name: np.array([row[place] for row in rows], dtype=object) for place, name in enumerate(COLUMNS)}
    )


def _list_node_rows(node: NodeResult) -> list[tuple[str, ...]]:
    ranks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for name, value in node.metrics.items():
        benchmark, slash, metric = _RANK.sub("", name).rpartition("/")
        if slash and value is not None and benchmark.partition("/")[0] != MONITOR:
            ranks[benchmark][metric].append(float(value))
    return [(node.node, benchmark, _model(benchmark), *_result(found)) for benchmark, found in ranks.items()]


def _model(benchmark: str) -> str:
    """The name of the model in that of a benchmark, such as `resnet50` in `resnet_models/pytorch-resnet50`."""
    return benchmark.rpartition("/")[2].removeprefix("pytorch-")


def _result(metrics: dict[str, list[float]]) -> tuple[str, ...]:
    """End state, return code, name of the metric and throughput of one benchmark."""
    codes = metrics.get("return_code", [0.0])
    failed = next((code for code in codes if code), 0.0)
    name = next((metric for metric in sorted(metrics) if "throughput" in metric), "")
    return "failed" if failed else "ok", str(int(failed)), name, str(fmean(metrics[name])) if name else ""


SOURCE = BackfillSource("superbench", "results of SuperBench, JSON lines with one object for each node", read, _MAP)
