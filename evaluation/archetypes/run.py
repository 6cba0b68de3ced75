"""`python -m evaluation archetypes`: which archetypes do public models have, and should they?

Every tiny model of torchvision, timm and transformers is dry-run (with `--quick` those whose class is written in
`classes.toml`). Printed are all clusters, archetypes that two classes share, and operators that are not known. Some
models are dry-run at other sizes and settings, which must not change their archetype.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from evaluation.coverage import environment
from evaluation.coverage.job import Job, job_environment, place
from evaluation.coverage.sources import families
from evaluation.figures import Figures, timed
from pharoah import PharoahError
from pharoah.dryrun import dry_run
from pharoah_archetypes import catalogue

LIBRARIES = ("torchvision", "timm", "transformers")
DRY_SECONDS = 120.0
WORKERS = max(1, len(os.sched_getaffinity(0)))
VARIATIONS = {
    "batch": ("--batch", "3"),
    "length": ("--length", "48"),
    "seed": ("--seed", "5"),
    "width": ("--sizes", "width=128"),
    "depth": ("--sizes", "depth=3"),
    "vocabulary": ("--sizes", "vocabulary=160"),
    "autocast": ("--autocast",),
    "checkpointing": ("--checkpointing",),
}
VARIED_EVERY = 3
"""Every third model of transformers that has a class is varied."""
UNKNOWN_OPERATOR = "counts as a custom kernel"
"""What a dry run says of an operator that it does not know."""


class Seen(NamedTuple):
    """What a dry run shows of a model."""

    archetype: str = ""
    grammar: str = ""
    unknown_operators: tuple[str, ...] = ()
    reason: str = ""
    """Why there is no dry run; empty when there is."""


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("archetypes")
    interpreter = environment.python()
    classes = written_classes()
    of_class = {model: name for name, models in classes.items() for model in models}
    jobs = {job.name: job for library in LIBRARIES for job in families(interpreter, library)}
    if missing := sorted(of_class.keys() - jobs.keys()):
        raise SystemExit(f"classes.toml: no model is named {', '.join(missing)}")
    chosen = [job for name, job in jobs.items() if name in of_class or not arguments.quick]
    seen: dict[str, Seen] = {}
    timed("models", lambda: seen.update(_all_seen(chosen)))
    _clusters(figures, seen)
    _collisions(figures, seen, of_class)
    _named(figures, seen)
    varied = [name for name in sorted(of_class) if name.startswith("transformers ") and seen[name].archetype]
    timed("variations", lambda: _variations(figures, [jobs[name] for name in varied[::VARIED_EVERY]], seen))
    return figures.finish(arguments)


def written_classes() -> dict[str, list[str]]:
    """The models of each class, from the file beside this one. Raises SystemExit for a model with two classes."""
    classes = {
        name: entry["models"]
        for name, entry in tomllib.loads(Path(__file__).with_name("classes.toml").read_text()).items()
    }
    listed = [model for models in classes.values() for model in models]
    if twice := {model for model in listed if listed.count(model) > 1}:
        raise SystemExit(f"classes.toml: {', '.join(sorted(twice))}: two classes")
    return classes


def _all_seen(jobs: Sequence[Job]) -> dict[str, Seen]:
    with ProcessPoolExecutor(WORKERS) as pool:
        found = dict(zip([job.name for job in jobs], pool.map(_seen, jobs), strict=True))
    for name, seen in found.items():
        if seen.reason:
            print(f"  {name}: no dry run: {seen.reason}", flush=True)
    return found


def _seen(job: Job) -> Seen:
    with place(job) as folder, chdir(folder), job_environment(job, job.command[0]):
        try:
            dry = dry_run(job.command, DRY_SECONDS)
        except PharoahError as reason:
            return Seen(reason=str(reason))
    unknown = tuple(sentence for sentence in dry.assumptions if UNKNOWN_OPERATOR in sentence)
    return Seen(dry.fingerprint.archetype, dry.fingerprint.grammar, unknown)


def _clusters(figures: Figures, seen: dict[str, Seen]) -> None:
    """All archetypes with their models."""
    clusters: dict[str, list[str]] = {}
    for name, one in seen.items():
        if one.archetype:
            clusters.setdefault(one.archetype, []).append(name)
    largest = sorted(clusters.values(), key=lambda names: (-len(names), names))
    for names in largest:
        if len(names) > 1:
            print(
                f"  {len(names)} models: {', '.join(names)}\n    {' '.join(seen[names[0]].grammar.split())}",
                flush=True,
            )
    figures.details["clusters"] = {names[0]: names for names in largest}
    figures.details["grammars"] = {names[0]: seen[names[0]].grammar for names in largest}
    figures.add("models", sum(bool(one.archetype) for one in seen.values()))
    figures.add("archetypes", len(clusters))
    unknown = {name: one.unknown_operators for name, one in seen.items() if one.unknown_operators}
    for name, sentences in unknown.items():
        print(f"  {name}: {'; '.join(sentences)}", flush=True)
    figures.details["unknown_operators"] = unknown
    figures.add("models_with_unknown_operators", len(unknown))


def _collisions(figures: Figures, seen: dict[str, Seen], of_class: dict[str, str]) -> None:
    """Pairs of models of two classes that have one archetype."""
    known = {name: one for name, one in seen.items() if name in of_class and one.archetype}
    pairs = [
        (a, b)
        for a, b in combinations(known, 2)
        if of_class[a] != of_class[b] and known[a].archetype == known[b].archetype
    ]
    for a, b in {frozenset((of_class[a], of_class[b])): (a, b) for a, b in pairs}.values():
        print(f"  {a} ({of_class[a]}) and {b} ({of_class[b]}): {' '.join(seen[a].grammar.split())}", flush=True)
    figures.add("classes", len({of_class[name] for name in known}), ">= 16", len({of_class[n] for n in known}) >= 16)
    figures.add("archetype_collisions", len(pairs), "0", not pairs)


def _named(figures: Figures, seen: dict[str, Seen]) -> None:
    """Public models that an entry of the catalogue names: has each the entry's archetype?"""
    listed = [(entry, name) for entry in catalogue().values() for name in entry.seen_in if name in seen]
    for entry, name in listed:
        if seen[name].archetype != entry.skeleton.archetype:
            print(f"  {name} is not {entry.id}: {' '.join(seen[name].grammar.split())}", flush=True)
    equal = sum(seen[name].archetype == entry.skeleton.archetype for entry, name in listed)
    figures.ratio("catalogue_names_ratio", equal, len(listed), 1.0)


def _variations(figures: Figures, jobs: Sequence[Job], seen: dict[str, Seen]) -> None:
    """The same models at other sizes and with other settings."""
    varied = [
        Job(f"{job.name} {variation}", (*job.command, *options))
        for job in jobs
        for variation, options in VARIATIONS.items()
    ]
    found = _all_seen(varied)
    bases = {f"{job.name} {variation}": seen[job.name] for job in jobs for variation in VARIATIONS}
    done = {name: one for name, one in found.items() if one.archetype}
    for name, one in done.items():
        if one.archetype != bases[name].archetype:
            print(f"  {name}: {' '.join(one.grammar.split())} was {' '.join(bases[name].grammar.split())}", flush=True)
    equal = sum(one.archetype == bases[name].archetype for name, one in done.items())
    figures.add("variations", len(VARIATIONS))
    figures.ratio("invariance_ratio", equal, len(done), 1.0)
