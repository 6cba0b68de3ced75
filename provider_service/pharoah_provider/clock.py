"""The clock of the provider's services, under the name by which they import it."""

from __future__ import annotations

from pharoah_serving.clock import Clock

__all__ = ["Clock"]
