"""A provider that reads its own clock: `python -m evaluation.privacy.watching_provider LOG ANSWERS serve ...`.

It is the provider that is shipped, behind an interceptor of gRPC that writes when each call came and when it was
answered. With ANSWERS `refused`, no question is answered, as by a provider whose quota is used up. With `contents`,
each message of each caller is written when it comes, with its bytes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import grpc
import grpc.aio

from pharoah_provider import cli
from pharoah_provider.cli import serve
from pharoah_provider.monitoring import run_budgets
from pharoah_serving.quotas import Limits

LAUNCH = "launch"
"""Metadata by which the evaluation, not the attacker, knows the launch of a call."""
REFUSED, CONTENTS = "refused", "contents"
GAME_JOINS = 1e6
"""All launches of a game join one node, within minutes; the provider lets so many through for this evaluation only."""
GAME_PSEUDONYMS = 1_000_000
"""All of them belong to one organisation, which otherwise gets 200 pseudonyms a day. A launch without a pseudonym sends
other messages than the game is about."""


class Watch(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]
    """Writes one line per call: launch, method, monotonic seconds of arrival and answer, bytes of the request. With
    `contents`, one line per message: method, seconds of arrival, and its bytes."""

    def __init__(self, log: TextIO, *, refuses: bool = False, contents: bool = False) -> None:
        self._log, self._refuses, self._contents = log, refuses, contents

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        came = time.monotonic()
        method = str(handler_call_details.method).rpartition("/")[2]
        launch = dict(handler_call_details.invocation_metadata).get(LAUNCH, "")
        handler = await continuation(handler_call_details)
        if handler is None or not (launch or self._contents):
            return handler
        seen = _Messages(self._log, method) if self._contents else _Seen(self._log, launch, method, came)
        if handler.response_streaming:
            return handler._replace(stream_stream=_streaming(handler.stream_stream, seen))
        return handler._replace(stream_unary=_unary(handler.stream_unary, seen, self._refuses))


class _Seen:
    """One call, as the attacker sees it."""

    def __init__(self, log: TextIO, launch: str, method: str, came: float) -> None:
        self._log, self._launch, self.method, self._came = log, launch, method, came
        self._bytes = 0

    async def counted(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            self._bytes += len(request)
            yield request

    def answered(self) -> None:
        line = {"launch": self._launch, "method": self.method, "came": self._came, "answered": time.monotonic()}
        self._log.write(json.dumps({**line, "bytes": self._bytes}) + "\n")


class _Messages(_Seen):
    """The messages of one call."""

    def __init__(self, log: TextIO, method: str) -> None:
        super().__init__(log, "", method, time.monotonic())

    async def counted(self, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for request in requests:
            line = {"method": self.method, "came": time.monotonic(), "content": request.hex()}
            self._log.write(json.dumps(line) + "\n")
            yield request

    def answered(self) -> None:
        """Its messages are written already."""


class ReceivedMessage(NamedTuple):
    """One message that a provider with `contents` has received."""

    method: str
    came: float
    """Monotonic seconds."""
    content: bytes


def received(log: Path) -> list[ReceivedMessage]:
    """The messages that are in its log now, in the order in which they came."""
    lines = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
    return [ReceivedMessage(line["method"], line["came"], bytes.fromhex(line["content"])) for line in lines]


def _unary(handler: Any, seen: _Seen, refuses: bool) -> Any:
    async def watched(requests: Any, context: Any) -> Any:
        try:
            if refuses and seen.method == "Evaluate":
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "the query batches of the day are used up")
            return await handler(seen.counted(requests), context)
        finally:
            seen.answered()

    return watched


def _streaming(handler: Any, seen: _Seen) -> Any:
    async def watched(requests: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for answer in handler(seen.counted(requests), context):
                yield answer
        finally:
            seen.answered()

    return watched


def main() -> int:
    path, answers, *command = sys.argv[1:]
    honest = grpc.aio.server
    run_budgets.NODE_JOINS = GAME_JOINS
    serve.Limits = partial(Limits, organisation_pseudonyms=GAME_PSEUDONYMS)  # type: ignore[assignment, attr-defined]
    with Path(path).open("a", buffering=1) as log:
        watch = Watch(log, refuses=answers == REFUSED, contents=answers == CONTENTS)

        def server(*arguments: Any, **named: Any) -> Any:
            return honest(*arguments, **{**named, "interceptors": [watch]})

        grpc.aio.server = server
        return cli.main(command)


if __name__ == "__main__":
    sys.exit(main())
