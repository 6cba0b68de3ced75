"""`python -m evaluation hardening`: the attacks on the whole product, as real processes wherever that is possible.

Each part is one module of this room with a function `measure(figures, quick, seed)`. `tests/security` holds the short
form of every attack.
"""

from __future__ import annotations

import argparse

from evaluation.parts import run_parts

PARTS = {
    "job_start": "a job under agents that answer anything, with streams that cannot be written",
    "job_harm": "jobs under limits, in odd surroundings, with sidecars that stop: alone and under `pharoah run`",
    "memory_group": "jobs that nearly fill the memory of their control group",
    "start_delay": "the start of a job on a machine that is busy",
    "lying_agents": "one malicious agent and a few malicious organisations",
    "consent": "micro-benchmarks beside runs that did not agree",
    "guest_probes": "results of micro-benchmarks that sidecars forge",
    "fair_share": "verdicts of others while one caller does its worst",
    "peers": "addresses and services that an agent must not trust",
    "exchanges": "everything that the product asks or sends, with peers that never end",
    "worst_messages": "calls of tenants while agents send the worst messages",
    "acknowledged": "outcomes that were acknowledged, across kills and cancelled calls",
    "clock_and_keys": "clocks that jump, copies of keys, lost folders",
    "timing": "what the provider reads off the times of messages",
    "folders": "folders that others have prepared, under everything that writes a file",
    "hostile_files": "files that people hand to each other, and that want code to run",
    "bombs": "files and messages that cost much to read",
    "sandbox": "ways out of a dry run",
    "settings": "settings that cannot be read or used",
    "terminal": "text of others on terminals and in logs",
    "imports": "processor time of commands until they have asked",
    "cost": "what the defences cost",
}
"""Module of this room to what it attacks, in the order in which they run."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all parts, or the one that was asked for. Returns the exit code."""
    return run_parts("hardening", PARTS, arguments, lambda part, to: part.measure(to, arguments.quick, arguments.seed))
