"""Files of SuperBench (github.com/microsoft/superbenchmark): results of nodes, baselines, and rules, read and written.

A metric is named `benchmark/metric`, with `:rank` where each rank has a value of its own (SuperBench's documentation,
data diagnosis). What is read and written again is equal, up to the order of keys.
"""

from pharoah_provider.superbench.baselines import baseline_text, read_baseline
from pharoah_provider.superbench.results import NodeResult, SuperBenchError, read_results, results_text
from pharoah_provider.superbench.rules import Rule, RuleFile, read_rules, rules_text

__all__ = [
    "NodeResult",
    "Rule",
    "RuleFile",
    "SuperBenchError",
    "baseline_text",
    "read_baseline",
    "read_results",
    "read_rules",
    "results_text",
    "rules_text",
]
