"""Executors: where the works of a campaign are done.

An executor is one file here, or an entry point of the group `pharoah.executors` in another distribution: an object of
the type `ExecutorKind`. The campaign decides what is done next, and stores the results; an executor does one work at a
time on each of its nodes, and reports which nodes it has.
"""

from pharoah_provider.campaigns.executors._executor import Executor, ExecutorKind
from pharoah_provider.campaigns.executors._registry import EXECUTORS, GROUP, executor_of

__all__ = ["EXECUTORS", "GROUP", "Executor", "ExecutorKind", "executor_of"]
