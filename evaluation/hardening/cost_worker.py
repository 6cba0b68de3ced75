"""Measures the tree that it imports, for `cost`: a request per line of its input, seconds per line of its output.

It uses only what all compared trees have. It is started as a file, so that an older tree need not have it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from evaluation.privacy.exchange_site import ExchangeSite, exchange_site, release_for_node
from evaluation.privacy.query_cost import _latencies
from evaluation.privacy.synthetic_release import Universe
from pharoah.dryrun import dry_run

ARCHETYPES = 2_000
"""Enough rows that a table has the size of a real one, and few enough to be sealed in seconds."""
SMALL_JOB = Path("evaluation/scripts/adversarial/plain.py")
TIMEOUT_SECONDS = 60.0


def main() -> None:
    """Answer until the input ends."""
    universe = Universe(int(sys.argv[1]), ARCHETYPES)
    with (
        tempfile.TemporaryDirectory() as folder,
        exchange_site(Path(folder, "site"), release_for_node(universe)) as site,
    ):
        for line in sys.stdin:
            request = json.loads(line)
            print(json.dumps(_measured(site, universe, request["what"], request["count"])), flush=True)


def _measured(site: ExchangeSite, universe: Universe, what: str, count: int) -> list[float]:
    if what == "verdicts":
        return asyncio.run(_latencies(site, universe, count))
    return [_dry_run() for _ in range(count)]


def _dry_run() -> float:
    began = time.perf_counter()
    dry_run([sys.executable, str(SMALL_JOB.resolve())], TIMEOUT_SECONDS)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
