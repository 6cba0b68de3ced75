"""What gRPC itself writes to standard error.

gRPC reads its setting once, when it is loaded. So the packages of processes that serve call this before they import
anything else.
"""

from __future__ import annotations

import os

VARIABLE = "GRPC_VERBOSITY"
"""gRPC's own setting: DEBUG, INFO, ERROR or NONE. What the environment says stays."""


def errors_only() -> None:
    """Keep away the line that gRPC otherwise writes for each handshake that fails: one stranger who connects without a
    certificate could fill the disk."""
    os.environ.setdefault(VARIABLE, "ERROR")
