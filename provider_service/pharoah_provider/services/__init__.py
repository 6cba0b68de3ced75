"""gRPC servicers: decode, call, encode. Protobuf stops here."""

from __future__ import annotations

from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
"""The context of a call, whatever its messages."""
