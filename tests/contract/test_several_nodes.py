"""A job on two nodes: each node's first rank starts a sidecar, and both sidecars join the provider as one job."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pharoah_protocol.local_messages import NodeStateAnswer
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.v1 import JoinRunRequest
from pharoah_provider.agent.local_socket import ticket_socket
from pharoah_provider.services.runs import RunsServicer
from tests.harness.exchange import on_loopback
from tests.harness.loopback import KEYS, Loopback

SCRIPT = """
import json, time
import pharoah

session = pharoah.register(lambda: None)
end = time.monotonic() + 30
while not session.status()["connected"] and time.monotonic() < end:
    session.step()
    time.sleep(0.1)
print(json.dumps([session.run_id, session.verdict.status, session.verdict.reason, session.status()["connected"]]))
"""


async def rank(node: int, folder: Path, short: str, site: Loopback) -> Any:
    """What the only rank of a node prints. `short` is a folder whose path is short enough for sockets."""
    own = folder / f"node{node}"
    own.mkdir()
    (own / "train.py").write_text(SCRIPT)
    environ = {
        **os.environ,
        "TMPDIR": short,
        "PHAROAH_ENDPOINT": site.endpoint,
        "PHAROAH_TOKEN_FILE": str(folder / "acme.token"),
        "PHAROAH_PROVIDER_KEY_FILE": str(folder / "provider.pub"),
        "PHAROAH_STATE_DIR": str(own / "state"),
        "PHAROAH_NODE_SOCKET": str(Path(short, "agent.sock")),
        "RANK": str(node),
        "LOCAL_RANK": "0",
        "GROUP_RANK": str(node),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    key = KEYS[f"n{node + 1}"]
    async with ticket_socket(Path(short, "agent.sock"), f"n{node + 1}", "boot", key, NO_LIMITS, NodeStateAnswer):
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            sys.executable, str(own / "train.py"), env=environ, stdout=pipe, stderr=pipe
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
        with (
            tempfile.TemporaryDirectory(prefix="n0", dir="/tmp") as first,
            tempfile.TemporaryDirectory(prefix="n1", dir="/tmp") as second,
        ):
            (id_0, _, reason_0, connected_0), (id_1, status_1, reason_1, connected_1) = await asyncio.gather(
                rank(0, tmp_path, first, site), rank(1, tmp_path, second, site)
            )
        assert connected_0 and connected_1
        assert status_1 == "unknown" and "rank 0 asks" in reason_1 and "rank 0 asks" not in reason_0
        assert id_0 != id_1 and {request.run_id.hex() for request in joined} == {id_0, id_1}
        assert len({request.job_id for request in joined}) == 1 and len(joined[0].job_id) == 16

    monkeypatch.setattr(RunsServicer, "JoinRun", noted)
    on_loopback(tmp_path, work)
