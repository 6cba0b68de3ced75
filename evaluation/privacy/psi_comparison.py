"""Costs of a query beside openmined-psi, a lookup of plain hashes and a bare echo, measured side by side."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import grpc.aio

from evaluation.environments import python_with
from evaluation.pages import ROOT
from evaluation.privacy.synthetic_release import Universe
from pharoah_learning.release import ClassKey
from pharoah_learning.sealing import Epoch
from pharoah_protocol.tables.query import BATCH_ITEMS, blind, inputs_of
from pharoah_protocol.tables.rows import open_row, split
from pharoah_protocol.v1 import EvaluateRequest, EvaluateResponse
from pharoah_protocol.vocabulary import Scope
from pharoah_protocol.voprf import protocol

REPEATS = 20
WORKER = Path(__file__).with_name("psi_worker.py")


@dataclass(frozen=True)
class Cost:
    """Costs of one query batch against ten thousand rows, on one class."""

    scheme: str
    client_seconds: float
    server_seconds: float
    sent_bytes: int
    table_bytes: int
    """Downloaded once an epoch."""
    verifiable: str


def costs(universe: Universe, epoch: Epoch) -> list[Cost]:
    """Rows of the table in docs."""
    return [_ours(universe, epoch), *costs_of_psi(len(universe.jobs)), *asyncio.run(_over_grpc())]


def _ours(universe: Universe, epoch: Epoch) -> Cost:
    one = epoch.classes[epoch.ids[ClassKey(scope=Scope.SERVER, group_id="a")]]
    rows, inputs = split(one.content), inputs_of(universe.jobs[0])
    client, server, size = [], [], 0
    for _ in range(REPEATS):
        began = time.perf_counter()
        batch = blind(inputs)
        blinded = time.perf_counter()
        evaluated, proof = protocol.evaluate(one.secret, one.public, batch.blinded)
        answered = time.perf_counter()
        protocol.verify(one.public, batch.blinded, evaluated, proof)
        for output in batch.outputs(evaluated):
            open_row(rows, output, epoch.head.epoch, one.class_id)
        client.append(time.perf_counter() - answered + blinded - began)
        server.append(answered - blinded)
        size = EvaluateRequest(offer_id=bytes(16), request_id=bytes(16), blinded=batch.blinded).ByteSize()
    return Cost("ours, private mode", median(client), median(server), size, len(one.content), "keys, table, history")


def costs_of_psi(rows: int) -> list[Cost]:
    """Costs of openmined-psi; an empty list where the package cannot be installed. The next call tries it again."""
    try:
        interpreter = python_with("psi-environment", ROOT / "requirements" / "psi.txt", [])
        done = subprocess.run([interpreter, WORKER, str(rows), str(BATCH_ITEMS)], check=True, capture_output=True)
        result: dict[str, Any] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"  openmined-psi cannot be run here: {error}", file=sys.stderr)
        return []
    return [
        Cost(
            f"openmined-psi {result['version']}, {name.upper()}",
            part["client_seconds"],
            part["server_seconds"],
            part["request_bytes"],
            part["table_bytes"],
            "no",
        )
        for name, part in ((name, result[name]) for name in ("gcs", "raw"))
    ]


async def _over_grpc() -> list[Cost]:
    """The round trip of 64 plain hashes, looked up or only echoed, on loopback without TLS."""
    spent: list[float] = []
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("peer.Peer", _handlers(spent)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return [
                await _round_trips(channel, "LookUp", "plain hashes over gRPC", spent),
                await _round_trips(channel, "Echo", "gRPC echo of as many bytes", spent),
            ]
    finally:
        await server.stop(None)


def _handlers(spent: list[float]) -> dict[str, grpc.RpcMethodHandler[Any, Any]]:
    """The two methods; each appends the seconds of its own work to `spent`."""
    table = {hashlib.sha256(b"%d" % number).digest(): b"row" for number in range(10_000)}

    async def look_up(request: Any, _: Any) -> Any:
        began = time.perf_counter()
        answer = EvaluateResponse(signature=b"".join(table.get(key, b"") for key in request.blinded))
        spent.append(time.perf_counter() - began)
        return answer

    async def echo(request: Any, _: Any) -> Any:
        spent.append(0.0)
        return EvaluateResponse(signature=request.request_id)

    return {
        name: grpc.unary_unary_rpc_method_handler(
            work,
            request_deserializer=EvaluateRequest.FromString,
            response_serializer=EvaluateResponse.SerializeToString,
        )
        for name, work in (("LookUp", look_up), ("Echo", echo))
    }


async def _round_trips(channel: grpc.aio.Channel, method: str, scheme: str, spent: list[float]) -> Cost:
    call = channel.unary_unary(
        f"/peer.Peer/{method}",
        request_serializer=EvaluateRequest.SerializeToString,
        response_deserializer=EvaluateResponse.FromString,
    )
    times, size = [], 0
    spent.clear()
    for _ in range(10 * REPEATS):
        blinded = [secrets.token_bytes(32) for _ in range(BATCH_ITEMS)]
        request = EvaluateRequest(request_id=bytes(16), blinded=blinded)
        began = time.perf_counter()
        await call(request)
        times.append(time.perf_counter() - began)
        size = request.ByteSize()
    return Cost(scheme, median(times) - median(spent), median(spent), size, 0, "no")
