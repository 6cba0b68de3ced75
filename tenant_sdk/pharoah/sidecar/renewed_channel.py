"""A channel on which calls go on after our certificate or token was renewed: a job may outlive both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from pharoah.sidecar.file_work import FileWork
from pharoah_protocol.channels import Access, AccessError, Option

log = logging.getLogger("pharoah.sidecar")

LOOK_SECONDS = 60.0
"""How long a look at the files may take. Nobody waits for it, and no second one begins meanwhile."""


class RenewedChannel:
    """A channel for stubs, which stay valid when it is opened again with other files. Belongs to the event loop."""

    def __init__(self, access: Access, *options: Option) -> None:
        self._access, self._options = access, options
        self._opened = [access.aio_channel(*options)]
        """The last one is used. Streams on those before it go on until they end."""
        self._found = access
        """Who we are by the newest look at the files; a thread writes it."""
        self._files = FileWork(LOOK_SECONDS)

    @property
    def access(self) -> Access:
        """Who we are in the next call."""
        if (found := self._found) is not self._access:
            log.info("the certificate or the token has changed, and is used from now on")
            self._access = found
            self._opened.append(found.aio_channel(*self._options))
        return self._access

    def look(self) -> None:
        """A call has failed: see whether there are other files, which the next call uses then.

        A thread of its own does it. The call takes no longer for it, and a file system that hangs holds nothing up.
        """
        with suppress(RuntimeError):  # no thread can be started now: the next call that fails looks again
            self._files.begin(self._look)

    def unary_unary(self, path: str, **coding: Any) -> Callable[..., Any]:
        return partial(self._call, "unary_unary", path, coding)

    def unary_stream(self, path: str, **coding: Any) -> Callable[..., Any]:
        return partial(self._call, "unary_stream", path, coding)

    def stream_unary(self, path: str, **coding: Any) -> Callable[..., Any]:
        return partial(self._call, "stream_unary", path, coding)

    def stream_stream(self, path: str, **coding: Any) -> Callable[..., Any]:
        return partial(self._call, "stream_stream", path, coding)

    async def close(self, grace: float | None = None) -> None:
        """End all calls, as gRPC's channels do."""
        for channel in self._opened:
            await channel.close(grace)

    def _call(self, kind: str, path: str, coding: dict[str, Any], *request: Any, **options: Any) -> Any:
        _ = self.access  # opens another channel first where there are other files
        return getattr(self._opened[-1], kind)(path, **coding)(*request, **options)

    def _look(self) -> None:
        try:
            self._found = self._found.renew()
        except AccessError as error:
            log.warning("what was read before stays in use: %s", error)
