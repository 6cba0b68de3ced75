"""The context of a call. In a file of its own: a command that serves nothing does not load gRPC."""

from __future__ import annotations

from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
"""The context of a call, whatever its messages."""
