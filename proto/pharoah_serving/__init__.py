"""Serving gRPC to strangers: identities, call guard, audit log, quotas, keys. Used by provider and auditor."""

from __future__ import annotations

from typing import Any

import grpc.aio

Context = grpc.aio.ServicerContext[Any, Any]
"""The context of a call, whatever its messages."""
