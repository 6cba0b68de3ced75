"""A job on two nodes: each node's first rank starts a sidecar, and both sidecars join the provider as one job."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pharoah.dryrun import dry_run
from pharoah_archetypes import rung_tokens
from pharoah_learning.release import LearnedRow, Release
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.v1 import JoinRunRequest
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity
from pharoah_provider.agent.local_socket import ticket_socket
from pharoah_provider.services.runs import RunsServicer
from tests.harness.exchange import on_loopback
from tests.harness.loopback import KEYS, Loopback, node
from tests.harness.until import until

UNKNOWN_JOB = """
import json, time
import pharoah

session = pharoah.register(lambda: None)
end = time.monotonic() + 30
while not session.status()["connected"] and time.monotonic() < end:
    session.step()
    time.sleep(0.1)
print(json.dumps([session.run_id, session.verdict.status, session.verdict.reason, session.status()["connected"]]))
"""

JOB = """
import json, os, time
import torch
import pharoah

session = pharoah.register()
session.on_alert(lambda alert: None)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
end = time.monotonic() + 60
while not (found := [one for one in session.verdict.findings if one.code.startswith("nodes-")]):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if session.status()["connected"] and os.environ["RANK"] != "0" or time.monotonic() > end:
        break
    time.sleep(0.1)
verdict = session.verdict
print(json.dumps([session.run_id, verdict.status, verdict.summary(), [vars(one) for one in found]]))
"""


RANK_VARIABLES = {
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_WORLD_SIZE": "1",
    "GROUP_WORLD_SIZE": "2",
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
}


async def rank(number: int, folder: Path, site: Loopback, script: str) -> Any:
    """What the only rank of a node prints. The nodes share a folder for their state, as a home on a network does."""
    file = folder / f"node{number}.py"
    file.write_text(script)
    with tempfile.TemporaryDirectory(prefix=f"n{number}", dir="/tmp") as short:  # paths of sockets are short
        environ = {
            **os.environ,
            **RANK_VARIABLES,
            "TMPDIR": short,
            "PHAROAH_ENDPOINT": site.endpoint,
            "PHAROAH_TOKEN_FILE": str(folder / "acme.token"),
            "PHAROAH_PROVIDER_KEY_FILE": str(folder / "provider.pub"),
            "PHAROAH_STATE_DIR": str(folder / "state"),
            "PHAROAH_NODE_SOCKET": str(Path(short, "agent.sock")),
            "RANK": str(number),
            "GROUP_RANK": str(number),
        }
        name = f"n{number + 1}"
        async with ticket_socket(Path(short, "agent.sock"), name, "boot", KEYS[name], NO_LIMITS, NodeStateAnswer):
            pipe = asyncio.subprocess.PIPE
            child = await asyncio.create_subprocess_exec(
                sys.executable, str(file), env=environ, stdout=pipe, stderr=pipe
            )
            out, errors = await child.communicate()
    assert child.returncode == 0, errors.decode()
    return json.loads(out)


def test_both_nodes_of_a_job_join_with_one_job_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[JoinRunRequest] = []
    join = RunsServicer.JoinRun

    async def noted(self: RunsServicer, request: JoinRunRequest, context: Any) -> Any:
        joined.append(request)
        return await join(self, request, context)

    async def work(site: Loopback) -> None:
        answers = await asyncio.gather(*(rank(number, tmp_path, site, UNKNOWN_JOB) for number in (0, 1)))
        (id_0, _, _, connected_0), (id_1, _, _, connected_1) = answers
        assert connected_0 and connected_1
        assert id_0 != id_1 and {request.run_id.hex() for request in joined} == {id_0, id_1}
        assert len({request.job_id for request in joined}) == 1 and len(joined[0].job_id) == 16

    monkeypatch.setattr(RunsServicer, "JoinRun", noted)
    on_loopback(tmp_path, work)


def test_each_node_asks_for_itself_and_the_first_one_states_what_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**RANK_VARIABLES, "RANK": "1", "GROUP_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    script = tmp_path / "train.py"
    script.write_text(JOB)
    tokens = rung_tokens(dry_run([sys.executable, str(script)], 60).fingerprint, Rung.EXACT)
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name)
    old = node("n2", "isa=avx2")
    fits = LearnedRow(
        scope=Scope.SERVER, group_id=node("n1").facts_id, rung=Rung.EXACT, tokens=tokens, severity=Severity.OK,
        outcome=Outcome.OK, failures=0, runs=5, base_failures=0, base_runs=25, remedy=0,
    )  # fmt: skip
    fails = replace(fits, group_id=old.facts_id, severity=Severity.BLOCK, outcome=Outcome.ERROR, failures=5)

    async def work(site: Loopback) -> None:
        await site.agent("n2", lambda _: 0.1, stands_on=old)
        first, second = await asyncio.gather(*(rank(number, tmp_path, site, JOB) for number in (0, 1)))
        assert (first[1], second[1]) == ("compatible", "incompatible"), (first, second)
        (finding,) = first[3]
        assert finding["what"] == "compatible on node 0; incompatible on node 1: this job fails with an error here"
        assert (finding["code"], finding["severity"]) == ("nodes-differ", "block")
        assert finding["evidence"].startswith("5/5 comparable runs; base 0/25")
        left = tmp_path / "state/exchange"
        await until(lambda: not list(left.glob("*/nodes/*")), "the first node to delete the verdicts")

    on_loopback(tmp_path, work, Release(1, (fits, fails)))
