"""A campaign over real versions of transformers: what fails where, where structure and speed change, and which versions
executed code shows to be the same.

Provider, agents, environments and cells are real. Each environment has one version of transformers with what pip
resolves for it, beside the torch of this machine. All cells run, also those that `skip_same_code` would leave out, so
that it can be counted what would be missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import resources
from pathlib import Path

from evaluation.figures import DOCS, OUTPUT, Figures
from evaluation.learning.version_picture import draw
from evaluation.learning.version_trials import Campaign, read_campaign
from pharoah_benchmarks.environments import environment_files
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.own_python import own_environment
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.site import node_profiles, running_site

GROUP = "transformers"
NODES = ("n1", "n2")
"""Two nodes of one configuration, each with a core of its own."""
CHOOSE = ("bert", "llama", "mixtral", "vit", "wav2vec2", "whisper")
"""Families whose workload lets one choose the attention: here the library chooses, as it does for most jobs."""
FAMILIES = (*CHOOSE, "mamba", "resnet", "swin", "t5")
QUICK_FAMILIES = ("llama", "mamba", "resnet")
QUICK_VERSIONS = ("4.44.0", "4.44.2", "5.24.0")
REPEATS, QUICK_REPEATS = 3, 2
STEPS = 12
LEAST_VERSIONS, LEAST_FAMILIES = 12, 8
PICTURE = Path("pictures/versions.png")
_WORKLOAD = """
[[workload]]
name = "{family}"
steps = {steps}
settings = {{ {settings} }}
vary = {{ environment = [{names}] }}
"""


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Build the environments, run the campaign, and count."""
    families = QUICK_FAMILIES if arguments.quick else FAMILIES
    everything = environment_files()[GROUP].environments
    names = [f"{GROUP}-{version}" for version in QUICK_VERSIONS] if arguments.quick else list(everything)
    _build(figures)
    with tempfile.TemporaryDirectory() as folder:
        details, dropped = _run(figures, Path(folder), families, names, arguments)
        trials = asyncio.run(_trials(Path(folder)))
    order = [everything[name].text for name in names]
    campaign = read_campaign(trials, order, details)
    _add_versions(figures, campaign, dropped, arguments.quick)
    _add_changes(figures, campaign)
    _add_code(figures, campaign)
    _add_early_failures(figures, trials)
    _add_tables(figures, campaign)
    OUTPUT.mkdir(exist_ok=True)
    draw(campaign, (DOCS if arguments.docs else OUTPUT) / (PICTURE if arguments.docs else PICTURE.name))


def _build(figures: Figures) -> None:
    """Build all environments, so that no build takes time from a cell. What cannot be built is missing later."""
    began = time.monotonic()
    file = resources.files("pharoah_benchmarks.environments") / f"{GROUP}.toml"
    command = [sys.executable, "-P", "-m", "pharoah_benchmarks.environments", "build", str(file)]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=own_environment(os.environ), check=False)
    figures.add("environments_build_seconds", time.monotonic() - began, interval="all of them, or those not cached")


def _run(
    figures: Figures, folder: Path, families: tuple[str, ...], names: list[str], arguments: argparse.Namespace
) -> tuple[dict[str, str], int]:
    """Run the campaign. Cell to the error it ended with, and how many cells could not run."""
    profiles = {name: profile for name, profile in node_profiles().items() if name in NODES}
    plan = folder / "versions.toml"
    plan.write_text(_plan(families, names, QUICK_REPEATS if arguments.quick else REPEATS))
    with running_site(folder, profiles) as site:
        began = time.monotonic()
        site.operator("campaign", "run", str(plan), "--seed", str(arguments.seed)).wait()
        figures.add("real_campaign_seconds", time.monotonic() - began)
        cells, works = site.listing("cells"), site.listing("campaign-works")
    dropped = [work["reason"] for work in works if work["state"] == "dropped" and work["kind"] == "cell"]
    for reason, count in Counter(dropped).items():
        print(f"{count} cells did not run: {reason}", flush=True)
    return {cell["id"]: cell["detail"] for cell in cells}, len(dropped)


def _plan(families: tuple[str, ...], names: list[str], repeats: int) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    settings = {family: 'attention = "library"' if family in CHOOSE else "" for family in families}
    return f'name = "versions"\nrepeats = {repeats}\nlimit_seconds = 120\n' + "".join(
        _WORKLOAD.format(family=family, steps=STEPS, settings=settings[family], names=quoted) for family in families
    )


async def _trials(folder: Path) -> list[Trial]:
    store = DuckStorage(folder / "provider.duckdb")
    try:
        return await store.evidence.trials()
    finally:
        store.close()


def _add_versions(figures: Figures, campaign: Campaign, dropped: int, quick: bool) -> None:
    """A version counts when at least one family was tried in it; that nothing works in it is a result."""
    versions = [version for version in campaign.versions if any(campaign.cell(version, f) for f in campaign.families)]
    least = len(QUICK_VERSIONS) if quick else LEAST_VERSIONS
    figures.add("real_campaign_versions", len(versions), f">= {least}", len(versions) >= least)
    least = len(QUICK_FAMILIES) if quick else LEAST_FAMILIES
    figures.add("real_campaign_families", len(campaign.families), f">= {least}", len(campaign.families) >= least)
    figures.add("real_campaign_cells", campaign.runs, interval=f"{dropped} could not run")
    failing = [cell for cell in campaign.cells.values() if not cell.worked]
    figures.add("real_campaign_pairs_failing", len(failing), interval=f"of {len(campaign.cells)} version x family")
    mixed = sum(len(set(cell.outcomes)) > 1 for cell in campaign.cells.values())
    figures.add("real_campaign_pairs_mixed", mixed, interval="that fail in one repeat and not in another")


def _add_changes(figures: Figures, campaign: Campaign) -> None:
    figures.add("real_campaign_structure_changes", len(campaign.structure_changes()))
    figures.add("real_campaign_outcome_changes", len(campaign.outcome_changes()))
    figures.add("real_campaign_speed_changes", len(campaign.speed_changes()))
    figures.add("real_campaign_noise_ratio", campaign.noise, interval="standard deviation of log step time in a block")


def _add_code(figures: Figures, campaign: Campaign) -> None:
    """What skipping saves and misses: by executed code, and by the simple rule that patch releases are the same."""
    for rule, same in (("code_hash", campaign.same_code()), ("same_minor_version", campaign.same_minor())):
        skipped = sum(len(campaign.cells[pair.later, pair.family].outcomes) for pair in campaign.skipped(same))
        figures.ratio(f"{rule}_runs_saved_ratio", skipped, campaign.runs)
        missed = campaign.missed(same)
        bound = ("0", not missed) if rule == "code_hash" else ("", True)
        shown = "; ".join(f"{pair.family} {pair.earlier} to {pair.later}" for pair in missed[:3])
        figures.add(f"{rule}_changes_missed", len(missed), *bound, interval=shown or f"of {len(same)} pairs")
        speed = campaign.missed_speed(same)
        figures.add(f"{rule}_speed_changes_missed", len(speed), interval="that the rule for noise calls changes")


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
