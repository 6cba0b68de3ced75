"""The registry of sources of past runs."""

from __future__ import annotations

from pharoah_protocol.registry import Registry
from pharoah_provider.backfill._source import BackfillSource

GROUP = "pharoah.backfill"
"""Entry points of this group are sources of other distributions."""

SOURCES = Registry(BackfillSource, "pharoah_provider.backfill", GROUP)
"""All sources by name."""
