"""Changes that are finished once they have begun, whoever has asked for them and gone away."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def complete_despite_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns or raises. When the caller is cancelled, the work goes on."""
    return await asyncio.shield(asyncio.ensure_future(work))
