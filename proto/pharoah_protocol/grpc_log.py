"""What gRPC itself writes to standard error.

gRPC reads its setting once, when it is loaded. So the packages of processes that serve call this before they import
anything else.
"""

from __future__ import annotations

import os

VARIABLE = "GRPC_VERBOSITY"
"""gRPC's own setting: DEBUG, INFO, ERROR or NONE. What the environment says stays."""


def errors_only() -> None:
    """Keep the line away that gRPC otherwise writes for each handshake that fails: one stranger who connects without a
    certificate caused 140 kB a second (`python -m evaluation hardening`, part fair_share), which is 12 GB a day."""
    os.environ.setdefault(VARIABLE, "ERROR")
