"""Strategies: ways to spread the training of a model over ranks.

A strategy is one file here, or an entry point of the group `pharoah.strategies` in another distribution: an object of
the type `Strategy`. Its description is read by the provider, which has no torch, so a module may import torch only
inside the function that distributes a model.
"""

from pharoah_benchmarks.strategies._registry import GROUP, STRATEGIES
from pharoah_benchmarks.strategies._strategy import Distributed, OptimizerChoice, Strategy

__all__ = ["GROUP", "STRATEGIES", "Distributed", "OptimizerChoice", "Strategy"]
