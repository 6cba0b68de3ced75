"""Is the rank found that runs other code? Real ranks under `pharoah run`; what the terminal shows counts."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

from evaluation.figures import Figures
from evaluation.scripts.train_odd import HOWS

RANKS = 4
TIMEOUT_SECONDS = 180.0


def measure(figures: Figures, quick: bool) -> None:
    """Every kind of oddity on every rank (one kind hangs the job), and jobs without an odd rank."""
    everything = list(itertools.product(HOWS, range(RANKS)))
    cases = everything[:: RANKS + 1] if quick else everything
    found = false = 0
    for how, rank in cases:
        named = odd_ranks(how, rank)
        right = named == (set() if how == "none" else {rank})
        found += right and how != "none"
        false += how == "none" and bool(named)
        if not right:
            print(f"  {how} on rank {rank}: named: {named or 'none'}", flush=True)
    odd = sum(how != "none" for how, _ in cases)
    figures.ratio("odd_rank_found_ratio", found, odd, 1.0)
    figures.add("odd_rank_false_alarms", false, f"0 of {len(cases) - odd}", false == 0)


def odd_ranks(how: str, rank: int) -> set[int]:
    """Ranks that `pharoah run` calls odd while the job runs."""
    script = Path(__file__).parents[1] / "scripts" / "train_odd.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS)]
    done = subprocess.run(
        [sys.executable, "-m", "pharoah", "run", "--", *launcher, str(script), "--rank", str(rank), "--how", how],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PHAROAH_HANG_AFTER_S": "6"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    printed = " ".join(done.stderr.split())
    return {int(number) for number in re.findall(r"rank (\d+) (?:does not run|whose last was)", printed)}
