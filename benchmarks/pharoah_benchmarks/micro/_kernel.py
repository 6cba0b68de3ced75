"""Kernels: one repeat of a micro-benchmark, and those that know whether their answer was right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Kernel = Callable[[], object]
"""One repeat. On a GPU it returns after the work has ended, not when it was queued."""


@dataclass(frozen=True)
class Check:
    """What a kernel knows of its answers, of all repeats together."""

    correct: bool
    digest: str = ""
    """A digest of the numbers that the kernel has computed (`pharoah_protocol.answer_digests`); empty where nodes of
    one class may differ in them."""


class CheckedKernel:
    """A kernel that checks its answers, or that holds something which must be released."""

    def __call__(self) -> object:
        """One repeat."""
        raise NotImplementedError

    def check(self) -> Check | None:
        """Whether the answers of all repeats were right. It runs after the last repeat and is not timed."""
        return None

    def goes_on(self, wanted: bool) -> bool:
        """Whether there is a further repeat. Ranks of one group agree on it here, because all of them must make the
        same number of repeats."""
        return wanted

    def close(self) -> None:
        """Release what the kernel holds. It runs also after an error of the kernel."""
