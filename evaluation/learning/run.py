"""`python -m evaluation learning`: what offline learning finds, in runs whose truth is known and in real ones.

Each part is one module of this room with a function `measure(figures, arguments)`.
"""

from __future__ import annotations

import argparse

from evaluation.figures import Figures
from evaluation.learning import incompatibilities
from evaluation.parts import run_parts

PARTS = {
    "incompatibilities": "incompatible pairs in simulated runs with a hidden cause",
    "rollout_pairs": "incompatible pairs in the runs of a second simulator, with roll-outs, lemons and giving up",
    "confirmations": "randomised confirmation of suspects",
    "layouts": "blocks over random sites with any devices and limits",
    "unseen_settings": "warnings about jobs with settings that no campaign has tried",
    "false_blocks": "production runs that mislead, and the randomised cells that decide",
    "scale": "time and memory up to ten million runs, beside pandas and statsmodels",
    "replay": "releases of a real provider that an auditor learns again",
    "granularity": "failure rates of versions, borrowed from archetype and family",
    "real_runs": "effects in public runs of other people, and who caused their failures",
    "attributions": "who caused failures, in logs whose cause was decided by hand",
    "documented": "what vendors document, asked about releases that were taken out",
    "versions": "a campaign over real versions of transformers",
    "budgets": "campaigns whose budget is short",
    "sub_archetypes": "clusters of versions that behave the same, and change points",
    "context_facts": "facts that matter for failures, in simulated runs with many facts",
    "faults": "every fault of the catalogue in real cells",
    "campaign_kills": "a campaign whose provider and agents are killed",
    "busy_campaigns": "campaigns on a busy machine: which works have no result",
}
"""Module of this room to what it measures, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one of `--part`. Returns the exit code."""
    if arguments.simulator_data:
        figures = Figures("learning")
        incompatibilities.measure_file(figures, arguments.simulator_data)
        return figures.finish(arguments)
    return run_parts("learning", PARTS, arguments, lambda part, to: part.measure(to, arguments))
