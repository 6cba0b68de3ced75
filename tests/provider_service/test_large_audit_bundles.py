"""The bundle of a provider with many trials is larger than any other answer, and takes longer on its way."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pharoah_protocol.v1 import ExportAuditBundleRequest, ExportAuditBundleResponse
from pharoah_provider import cli
from pharoah_provider.channel import MAX_LISTING_BYTES
from pharoah_provider.services.operator import OperatorServicer
from pharoah_serving.call_guard import MAX_CALL_SECONDS
from pharoah_serving.context import Context
from tests.harness.exchange import on_loopback
from tests.harness.loopback import TOKENS, Loopback
from tests.harness.tokens import write_token

BYTES = MAX_LISTING_BYTES + (1 << 20)


async def large(_: OperatorServicer, request: ExportAuditBundleRequest, context: Context) -> ExportAuditBundleResponse:
    """A bundle that is larger than a listing may be; it begins with the seconds that its call has left."""
    seconds = f"{context.time_remaining():.0f}"
    return ExportAuditBundleResponse(content=seconds.ljust(BYTES, "x"))


def exported(tmp_path: Path, epoch: str) -> tuple[int, Path]:
    """The exit code of the command, and the file that it may have written."""
    token = write_token(tmp_path / "ops.token", TOKENS["ops"])
    out, codes = tmp_path / "bundle.json", list[int]()

    async def work(site: Loopback) -> None:
        access = ["--endpoint", site.endpoint, "--token-file", str(token)]
        codes.append(await asyncio.to_thread(cli.main, ["audit-bundle", epoch, "--out", str(out), *access]))

    on_loopback(tmp_path, work)
    return codes[0], out


def test_a_bundle_may_be_larger_and_later_than_a_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OperatorServicer, "ExportAuditBundle", large)
    code, out = exported(tmp_path, "1")
    content = out.read_text()
    assert code == 0 and len(content) == BYTES
    assert float(content.rstrip("x")) > MAX_CALL_SECONDS


def test_a_bundle_that_is_refused_is_an_error_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = exported(tmp_path, "77")
    assert code == 1 and not out.exists()
    assert "epoch 77 was not sealed here (NOT_FOUND)" in capsys.readouterr().err
