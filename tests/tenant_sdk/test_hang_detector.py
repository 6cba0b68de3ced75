"""Who waits for whom when a job hangs: torch's flight recorder, and what all ranks' answers say together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from pharoah.sidecar.hang_detector import HangDetector
from pharoah_protocol.rank_messages import CollectiveCall

ASK = """
import json, sys, torch, torch.distributed as dist
from pharoah.capture.flight_recorder import last_calls, last_starts, recorded_calls
before = last_calls(recorded_calls())
dist.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(4))
dist.broadcast(torch.ones(2), 0)
print(json.dumps([before, last_calls(recorded_calls()), last_starts(recorded_calls(places=False))]))
"""


def call(number: int, name: str = "all_reduce", sizes: str = "[[4]]", place: str = "train.py:9") -> CollectiveCall:
    return CollectiveCall("0", "[0, 1, 2]", number, name, sizes, place)


def rounds(*calls: CollectiveCall, times: int = 2) -> list[str]:
    """What is found when ranks answer so, each as often."""
    flights = HangDetector()
    for _ in range(times):
        flights.begin()
        for rank, last in enumerate(calls):
            flights.add(rank, [last])
    return [finding.what for finding in flights.findings()]


def test_the_rank_that_is_behind_is_the_one_the_others_wait_for() -> None:
    assert rounds(call(18), call(17, "all_gather", place="ev.py:5"), call(18)) == [
        "ranks 0, 2 wait in all_reduce number 18 (train.py:9) for rank 1 whose last was all_gather number 17 (ev.py:5)"
    ]


def test_ranks_that_call_different_collectives_are_named() -> None:
    assert rounds(call(18), call(18, sizes="[[8]]")) == [
        "rank 1 calls all_reduce number 18 (train.py:9) of [[8]] where rank 0 calls all_reduce number 18 (train.py:9)"
        " of [[4]]"
    ]


def test_a_job_that_moves_or_waits_together_does_not_hang() -> None:
    assert rounds(call(18), call(17), times=1) == [], "seen once only"
    assert rounds(call(18), call(18)) == [], "all in the same place: a long step"
    assert rounds(call(18)) == [], "nobody to compare with"
    flights = HangDetector()
    for number in (17, 18):
        flights.begin()
        flights.add(0, [call(number)])
        flights.add(1, [call(number - 1)])
    assert flights.findings() == (), "behind, but on the way"
    flights.begin()
    flights.forget()
    assert flights.findings() == ()


def test_the_flight_recorder_is_read_with_the_users_line(tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    command = [sys.executable, str(script), f"file://{tmp_path}/store"]
    said = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    [before, [last], starts] = json.loads(said.stdout)
    assert before == []
    assert [start["number"] for start in starts] == [1, 2, 3, 4]
    times = [start["at_ns"] for start in starts]
    assert times == sorted(times)
    assert abs(time.time() - times[-1] / 1e9) < 600
    assert last.pop("ranks") in ("[0]", "")  # gloo does not say
    assert last == {"group": "0", "number": 4, "name": "broadcast", "sizes": "[[2]]", "place": "ask.py:8"}
