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
from pharoah.capture.flight_recorder import last_calls, last_starts, read_recorded_calls
before = last_calls(read_recorded_calls())
dist.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=1)
for _ in range(3):
    dist.all_reduce(torch.ones(4))
dist.broadcast(torch.ones(2), 0)
print(json.dumps([before, last_calls(read_recorded_calls()), last_starts(read_recorded_calls(places=False))]))
"""


WITH_NCCL = """
import json, pickle, sys, torch, torch.distributed as dist
from pharoah import torch_names
from pharoah.capture.flight_recorder import last_calls, last_starts, read_recorded_calls
dist.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=1)
dist.all_reduce(torch.ones(4))
c10d = sys.modules["torch._C._distributed_c10d"]
gloo = c10d._dump_fr_trace
def nccl(includeStackTraces):
    recorded = pickle.loads(gloo(includeStackTraces=includeStackTraces))
    for entry in recorded["entries"]:
        entry.update(collective_seq_id=7, profiling_name="nccl:all_gather", time_created_ns=1)
    return pickle.dumps({**recorded, "pg_config": {"0": {"ranks": "[0, 1]"}}})
def fail(**_):
    raise RuntimeError("no recorder")
said = []
for c10d._dump_fr_trace, c10d._dump_nccl_trace in [(gloo, nccl), (fail, nccl), (gloo, fail), (fail, fail)]:
    for name in ("dump_of_gloo", "dump_of_nccl"):
        vars(torch_names).pop(name, None)  # what it has found once it does not look for again
    recorded = read_recorded_calls()
    calls = [[call["group"], call["name"], call["number"], call["ranks"]] for call in last_calls(recorded)]
    said.append([calls, [start["group"] for start in last_starts(recorded)]])
print(json.dumps(said))
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


def test_ranks_may_give_parts_of_other_sizes_where_the_collective_allows_it() -> None:
    for name in ("all_to_all", "nccl:all_to_allv", "alltoall_base", "scatter"):
        assert rounds(call(18, name), call(18, name, sizes="[[8]]")) == [], name
    for name in ("all_gather", "nccl:reduce_scatter"):
        assert len(rounds(call(18, name), call(18, name, sizes="[[8]]"))) == 1, name


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


def test_both_flight_recorders_are_read(tmp_path: Path) -> None:
    """NCCL has a recorder of its own. This torch has none, so that gloo's stands for it in other words."""
    script = tmp_path / "ask.py"
    script.write_text(WITH_NCCL)
    command = [sys.executable, str(script), f"file://{tmp_path}/store"]
    said = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)
    both, only_nccl, only_gloo, none = json.loads(said.stdout)
    (nccl, gloo), starts = both
    assert nccl == ["cuda:0", "all_gather", 7, "[0, 1]"]
    assert gloo[:3] == ["0", "all_reduce", 1]
    assert starts == ["cuda:0", "0"], "the older one first"
    assert (only_nccl, only_gloo, none) == ([[nccl], ["cuda:0"]], [[gloo], ["0"]], [[], []])
