"""`pharoah doctor`: check that everything is there that a check needs; each line passes or fails, with what to do."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable
from importlib import metadata
from typing import Any

from pharoah._errors import PharoahError, UnknownReason
from pharoah._settings import Settings
from pharoah.capture.inventory import find_installed_version
from pharoah.cli import _common
from pharoah.cli._output import render_check, show
from pharoah.comparison.history import History
from pharoah.documented import find_installed_facts, objections
from pharoah.torch_releases import outside_promise
from pharoah_archetypes.documented import Compatibility, documents

Check = Callable[[Settings], str]


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser("doctor", help="test what a check needs", description=__doc__)
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--endpoint", metavar="ADDRESS")
    parser.add_argument("--node-socket", metavar="PATH")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code."""
    settings = _common.settings_of(arguments)
    results = []
    for name, check in CHECKS.items():
        try:
            results.append({"check": name, "result": "PASS", "detail": check(settings)})
        except Exception as error:  # noqa: BLE001 - a doctor reports whatever is wrong
            detail = str(error) if isinstance(error, PharoahError) else f"{type(error).__name__}: {error}"
            results.append({"check": name, "result": "FAIL", "detail": detail})
    if arguments.output == "json":
        show(json.dumps(results))
    else:
        for row in results:
            show(render_check(**row))
    return int(any(row["result"] == "FAIL" for row in results))


def _packages(_: Settings) -> str:
    return ", ".join(f"{name} {metadata.version(name)}" for name in ("grpcio", "protobuf", "cryptography"))


def _torch(_: Settings) -> str:
    release = find_installed_version("torch")
    if not release:
        raise UnknownReason("a job of this interpreter finds no torch: install it, or run the job's own interpreter")
    if doubt := outside_promise(release):
        raise UnknownReason(f"{doubt}; jobs run, and a dry run may end without a result")
    return f"torch {release}"


def _check_documented(_: Settings) -> str:
    answers = list(documents().answers(find_installed_facts()))
    if against := list(objections(answers)):
        raise UnknownReason("; ".join(f"not {answer.question}: {answer.remedy}" for answer in against))
    known = sum(answer.compatibility is Compatibility.COMPATIBLE for answer in answers)
    return f"what is installed goes together: {known} of {len(answers)} questions answered; see `pharoah documented`"


def _sodium(_: Settings) -> str:
    from pharoah_protocol.voprf import libsodium

    library = libsodium.library()
    return f"libsodium with ristretto255 ({library._name})"


def _agent(settings: Settings) -> str:
    from pharoah.sidecar.agent_client import ask_node

    answer = asyncio.run(ask_node(settings.node_socket, settings.timeout_seconds, settings.service_users))
    limits = {name: value for name, value in answer.received.profile.to_dict().items() if name != "ceilings"}
    dropped = f"; not usable: {'; '.join(answer.received.dropped)}" if answer.received.dropped else ""
    return f"a ticket was issued; profile {limits or 'none'}{dropped}"


def _provider(settings: Settings) -> str:
    import time

    from pharoah.sidecar.exchange_client import ExchangeClient
    from pharoah.sidecar.log_client import VerificationError
    from pharoah.sidecar.provider_connection import ProviderConnection, reason

    async def ask() -> str:
        import grpc.aio

        try:
            head = (await ExchangeClient(ProviderConnection(settings), settings).epoch()).head
        except grpc.aio.AioRpcError as error:
            raise UnknownReason(reason(error)) from None
        except VerificationError as error:
            raise UnknownReason(f"its answer is rejected: {error}") from None
        return f"epoch {head.epoch} of release {head.release}, {(head.not_after - time.time()) / 3600:.1f} h left"

    if settings.no_provider:
        raise UnknownReason(settings.no_provider)
    return asyncio.run(ask())


def _names(settings: Settings) -> str:
    from pharoah.sidecar.provider_connection import ProviderConnection
    from pharoah.sidecar.pseudonym_client import PseudonymClient

    async def keys() -> int:
        namer = PseudonymClient(ProviderConnection(settings), settings)
        try:
            return await namer.period()
        finally:
            await namer.close()

    if not settings.share_outcomes:
        return "outcomes are not shared (PHAROAH_SHARE_OUTCOMES)"
    return f"provider and auditor hold their keys of period {asyncio.run(keys())}"


def _records(settings: Settings) -> str:
    history = History(settings)
    with tempfile.TemporaryFile(dir=history.folder()):
        pass  # it can be written to
    return f"{len(history.runs())} of {settings.keep_runs} runs kept in {settings.state_folder}"


CHECKS: dict[str, Check] = {
    "packages": _packages,
    "torch": _torch,
    "documented": _check_documented,
    "libsodium": _sodium,
    "agent": _agent,
    "provider": _provider,
    "names": _names,
    "records": _records,
}
