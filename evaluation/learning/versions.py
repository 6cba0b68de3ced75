"""A campaign over real versions of transformers: what fails where, where structure and speed change, and which versions
executed code shows to be the same.

Provider, agents, environments and cells are real. Each environment has one version of transformers with what pip
resolves for it, beside the torch of this machine. A first campaign leaves out what executes the same code
(`skip_same_code`). A second one runs all cells, so that it can be counted what the first one has missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from evaluation.figures import OUTPUT, Figures
from evaluation.learning.version_picture import draw
from evaluation.learning.version_trials import Campaign, read_campaign
from evaluation.pages import DOCS
from pharoah_benchmarks.environments import environment_files
from pharoah_benchmarks.environments.lock import read_locks
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.usable_trials import usable_trials
from pharoah_provider.storage.duckdb import DuckStorage
from pharoah_system.own_python import own_environment
from tests.harness.site import Site, node_profiles, running_site

GROUP = "transformers"
NODES = ("n1", "n2")
"""Two nodes of one configuration, each with a core of its own."""
CHOOSE = ("bert", "llama", "mixtral", "vit", "wav2vec2", "whisper")
"""Families whose workload lets one choose the attention: here the library chooses, as it does for most jobs."""
FAMILIES = (*CHOOSE, "mamba", "resnet", "swin", "t5")
QUICK_FAMILIES = ("llama", "mamba", "resnet")
QUICK_VERSIONS = ("4.48.0", "4.48.3", "5.24.0")
REPEATS, QUICK_REPEATS = 3, 2
STEPS = 20
MAX_SECONDS = 7_200.0
MIN_VERSIONS, MIN_FAMILIES = 12, 8
PICTURE = Path("pictures/versions.png")
_HEAD = """
name = "{name}"
repeats = {repeats}
limit_seconds = 120
skip_same_code = {skip}
"""
_WORKLOAD = """
[[workload]]
name = "{family}"
steps = {steps}
settings = {{ {settings} }}
vary = {{ environment = [{names}] }}
"""


class _Results(NamedTuple):
    """What the site has listed at the end."""

    details: dict[str, str]
    """Id of each result to the error it ended with."""
    block_prefix: str
    """Blocks of the second campaign begin with this."""
    skipped: list[str]
    """Cells that the first campaign left out because of their code."""
    planned: int
    """Cells of the first campaign."""
    dropped: list[str]
    """Why cells of the second campaign could not run."""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Build the environments, run the campaigns, and count."""
    families = QUICK_FAMILIES if arguments.quick else FAMILIES
    everything = environment_files()[GROUP].environments
    names = [f"{GROUP}-{version}" for version in QUICK_VERSIONS] if arguments.quick else list(everything)
    with tempfile.TemporaryDirectory() as folder:
        locks = _build(figures, Path(folder))
        locked = read_locks(tomllib.loads(locks).get("lock", []))
        names = [name for name in names if everything[name].text in locked]
        results = _run(figures, Path(folder), families, names, locks, arguments)
        trials = asyncio.run(_trials(Path(folder)))
    trials = [trial for trial in trials if trial.block.startswith(results.block_prefix)]
    campaign = read_campaign(trials, [everything[name].text for name in names], results.details)
    _add_versions(figures, campaign, results.dropped, arguments.quick)
    _add_changes(figures, campaign)
    _add_code(figures, campaign, results)
    _add_early_failures(figures, trials)
    _add_tables(figures, campaign)
    OUTPUT.mkdir(exist_ok=True)
    draw(campaign, (DOCS if arguments.docs else OUTPUT) / (PICTURE if arguments.docs else PICTURE.name))


def _build(figures: Figures, folder: Path) -> str:
    """Lock and build all environments, so that no build takes time from a cell; gives the locks. What cannot be locked
    or built is missing later."""
    began = time.monotonic()
    file, environ = folder / f"{GROUP}.toml", own_environment(os.environ)
    text = (resources.files("pharoah_benchmarks.environments") / f"{GROUP}.toml").read_text()
    file.write_text(text)
    command = [sys.executable, "-P", "-m", "pharoah_benchmarks.environments"]
    locks = subprocess.run([*command, "lock", str(file)], stdout=subprocess.PIPE, text=True, env=environ).stdout
    file.write_text(f"{text}\n{locks}")
    subprocess.run([*command, "build", str(file)], stdout=subprocess.DEVNULL, env=environ, check=False)
    figures.add("environments_build_seconds", time.monotonic() - began, interval="all of them, or those not cached")
    return locks


def _run(
    figures: Figures,
    folder: Path,
    families: tuple[str, ...],
    names: list[str],
    locks: str,
    arguments: argparse.Namespace,
) -> _Results:
    """Run both campaigns on one site."""
    profiles = {name: profile for name, profile in node_profiles().items() if name in NODES}
    repeats = QUICK_REPEATS if arguments.quick else REPEATS
    with running_site(folder, profiles) as site:
        for name, repeat, skip in (("skipping", 1, "true"), ("versions", repeats, "false")):
            plan = folder / f"{name}.toml"
            plan.write_text(_HEAD.format(name=name, repeats=repeat, skip=skip) + _workloads(families, names) + locks)
            began = time.monotonic()
            site.operator("campaign", "run", str(plan), "--seed", str(arguments.seed)).wait()
            _wait_for(site, name)  # the provider ends connections that are old, and the campaign goes on
            figures.add(f"real_campaign_{name}_seconds", time.monotonic() - began)
        campaigns = {campaign["name"]: campaign["id"] for campaign in site.listing("campaigns")}
        works = [work for work in site.listing("campaign-works") if work["kind"] == "cell"]
        details = {cell["id"]: cell["detail"] for cell in site.listing("cells")}
    first = [work for work in works if work["campaign"] == campaigns["skipping"]]
    return _Results(
        details=details,
        block_prefix=f"{campaigns['versions']}/",
        skipped=[work["cell"] for work in first if work["state"] == "same code"],
        planned=len(first),
        dropped=[w["reason"] for w in works if w["campaign"] == campaigns["versions"] and w["state"] == "dropped"],
    )


def _wait_for(site: Site, name: str) -> None:
    """Wait until a campaign has ended. Raises TimeoutError when it goes on for too long."""
    deadline = time.monotonic() + MAX_SECONDS
    while any(row["name"] == name and row["state"] == "running" for row in site.listing("campaigns")):
        if time.monotonic() > deadline:
            raise TimeoutError(f"campaign {name} did not end within {MAX_SECONDS:g} s")
        time.sleep(2.0)


def _workloads(families: tuple[str, ...], names: list[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    settings = {family: 'attention = "library"' if family in CHOOSE else "" for family in families}
    return "".join(
        _WORKLOAD.format(family=family, steps=STEPS, settings=settings[family], names=quoted) for family in families
    )


async def _trials(folder: Path) -> list[Trial]:
    store = DuckStorage(folder / "provider.duckdb")
    try:
        return await store.evidence.trials()
    finally:
        store.close()


def _add_versions(figures: Figures, campaign: Campaign, dropped: list[str], quick: bool) -> None:
    """A version counts when at least one family was tried in it; that nothing works in it is a result."""
    versions = [version for version in campaign.versions if any(campaign.cell(version, f) for f in campaign.families)]
    least = len(QUICK_VERSIONS) if quick else MIN_VERSIONS
    figures.add("real_campaign_versions", len(versions), f">= {least}", len(versions) >= least)
    least = len(QUICK_FAMILIES) if quick else MIN_FAMILIES
    figures.add("real_campaign_families", len(campaign.families), f">= {least}", len(campaign.families) >= least)
    figures.add("real_campaign_cells", campaign.runs, interval=f"{len(dropped)} could not run")
    for reason, count in Counter(dropped).items():
        print(f"  {count} cells could not run: {reason}", flush=True)
    failing = [cell for cell in campaign.cells.values() if not cell.worked]
    figures.add("real_campaign_pairs_failing", len(failing), interval=f"of {len(campaign.cells)} version x family")
    mixed = sum(len(set(cell.outcomes)) > 1 for cell in campaign.cells.values())
    figures.add("real_campaign_pairs_mixed", mixed, interval="that fail in one repeat and not in another")


def _add_changes(figures: Figures, campaign: Campaign) -> None:
    figures.add("real_campaign_structure_changes", len(campaign.structure_changes()))
    figures.add("real_campaign_outcome_changes", len(campaign.outcome_changes()))
    figures.add("real_campaign_speed_changes", len(campaign.speed_changes()))
    figures.add("real_campaign_noise_ratio", campaign.noise, interval="standard deviation of log step time in a block")


def _add_code(figures: Figures, campaign: Campaign, results: _Results) -> None:
    """What skipping saves and misses: by executed code, and by the simple rule that patch releases are the same."""
    same, minor = campaign.same_code(), campaign.same_minor()
    figures.ratio("code_hash_runs_saved_ratio", len(results.skipped), results.planned)
    missed = campaign.missed(same)
    shown = "; ".join(f"{pair.family} {pair.earlier} to {pair.later}" for pair in missed[:3])
    figures.add("code_hash_changes_missed", len(missed), "0", not missed, shown or f"of {len(same)} pairs")
    figures.add("code_hash_speed_changes_missed", len(campaign.missed_speed(same)), interval="calls of the noise")
    figures.ratio("same_minor_version_runs_saved_ratio", campaign.skipped_runs(minor), campaign.runs)
    figures.add("same_minor_version_changes_missed", len(campaign.missed(minor)), interval=f"of {len(minor)} pairs")
    figures.add("same_minor_version_speed_changes_missed", len(campaign.missed_speed(minor)))


def _add_early_failures(figures: Figures, trials: list[Trial]) -> None:
    """How many trials that failed before they had a model count in learning."""
    early = {trial.trial_id for trial in trials if not trial.fingerprint}
    left_out = LeftOut()
    used = {trial.trial_id for trial in usable_trials(trials, left_out)}
    figures.ratio("early_failures_usable_ratio", len(early & used), len(early))
    for line in left_out.lines():
        print(f"  {line}", flush=True)


def _add_tables(figures: Figures, campaign: Campaign) -> None:
    rows = [
        [version, *(campaign.shown(version, family) for family in campaign.families)] for version in campaign.versions
    ]
    figures.table(
        "Step time of each version of transformers relative to the newest one that works, by family. `=` marks a "
        "version that executes the same code as the version above it, `*` another structure than above, `<` and `>` "
        "the first version of a piece that is faster or slower.",
        ["transformers", *campaign.families],
        rows,
    )
    errors: dict[str, list[str]] = {}
    for (version, family), cell in campaign.cells.items():
        if not cell.worked:
            errors.setdefault(f"{cell.outcomes[0]}: {cell.detail}", []).append(f"{family} {version}")
    figures.table(
        "How families fail.",
        ["error", "pairs", "such as"],
        [[error[:160].replace("|", "/"), str(len(pairs)), ", ".join(pairs[:4])] for error, pairs in errors.items()],
    )
