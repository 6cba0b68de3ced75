"""What can end a job, one cause per module. To add one, add a module with one `EndCause`."""

from __future__ import annotations

from pharoah.end_causes._cause import GROUP, EndCause, EndFacts, JudgedEnd, end_causes, judge_end
from pharoah.end_causes._memory_kills import MemoryKills, memory_kills

__all__ = [
    "GROUP",
    "EndCause",
    "EndFacts",
    "JudgedEnd",
    "MemoryKills",
    "end_causes",
    "judge_end",
    "memory_kills",
]
