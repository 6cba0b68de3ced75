"""Clocks that jump, two providers on one folder, restored copies and lost folders: what honest operators live through.

Clock jumps are games in simulated time with the provider's own code (`clock_jumps`). Copies are real processes
(`copied_providers`). In both a real tenant judges, and `prove` decides whether its evidence convicts the provider.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from evaluation.figures import Figures
from evaluation.hardening import clock_jumps, copied_providers
from evaluation.hardening.copied_providers import FILES, Site

GAMES, QUICK_GAMES = 200, 24
"""A game takes about a second, so that the full form takes less than six minutes together with the processes."""
KILLS, QUICK_KILLS = 12, 3

Game = Callable[[Site], bool]


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add `clock_jumps_survived`, `seeds_lost` and `honest_self_convictions`."""
    logging.getLogger("pharoah.provider").setLevel(logging.CRITICAL)  # each jump is reported, as it should be
    with tempfile.TemporaryDirectory(prefix="pharoah-clocks-") as folder:
        convicted = _clocks(figures, Path(folder), QUICK_GAMES if quick else GAMES, seed)
    with tempfile.TemporaryDirectory(prefix="pharoah-copies-") as folder:
        convicted += _copies(figures, Path(folder), quick, seed)
    figures.add("honest_self_convictions", convicted, "0", convicted == 0)


def _clocks(figures: Figures, folder: Path, games: int, seed: int) -> int:
    """The convictions of all games with clocks."""
    outcomes = [clock_jumps.played(_made(folder / str(number)), 1000 * seed + number) for number in range(games)]
    for outcome in outcomes:
        if not outcome.survived or outcome.seeds_lost or outcome.convictions:
            print(f"  {outcome}", flush=True)
    figures.ratio("clock_jumps_survived", sum(outcome.survived for outcome in outcomes), games, 1.0)
    seeds_lost = sum(outcome.seeds_lost for outcome in outcomes)
    figures.add("seeds_lost", seeds_lost, "0", seeds_lost == 0, f"{games} games")
    return sum(outcome.convictions for outcome in outcomes)


def _copies(figures: Figures, folder: Path, quick: bool, seed: int) -> int:
    """The convictions of all games with processes."""
    games = _games(quick, seed)
    convicted = answered = 0
    for name, game in games.items():
        site = Site(folder / name.replace(" ", "-"))
        held = game(site)
        answered += held
        convicted += len(site.proofs)
        said = site.refusals[-1][-90:] if site.refusals else "-"
        print(f"  {name:40} verdicts {'go on' if held else 'STOP'}; proofs {len(site.proofs)}; {said}", flush=True)
    figures.ratio("verdicts_after_copies_ratio", answered, len(games), 1.0)
    return convicted


def _games(quick: bool, seed: int) -> dict[str, Game]:
    games: dict[str, Game] = {
        "two providers": copied_providers.two_providers,
        "an older database": partial(copied_providers.restored, names=("p.duckdb",), in_place=False),
        "everything older": partial(copied_providers.restored, names=FILES, in_place=False),
        "lost keys": partial(copied_providers.lost, name="keys"),
        "killed": partial(copied_providers.killed, seed=seed, kills=QUICK_KILLS if quick else KILLS),
    }
    if quick:
        return games
    return games | {
        "older keys": partial(copied_providers.restored, names=("keys",), in_place=False),
        "an older audit log": partial(copied_providers.restored, names=("audit",), in_place=False),
        "everything older written over": partial(copied_providers.restored, names=FILES, in_place=True),
        "older keys written over": partial(copied_providers.restored, names=("keys",), in_place=True),
        "a lost database": partial(copied_providers.lost, name="p.duckdb"),
        "a lost signing key": partial(copied_providers.lost, name="keys/signing.key"),
        "a lost high-water mark": partial(copied_providers.lost, name="keys/high-water.json"),
        "a lost audit log": partial(copied_providers.lost, name="audit"),
        "lost seeds": partial(copied_providers.lost, name="keys/epoch-1.seed"),
    }


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
