"""Games about times: can the provider distinguish two kinds of jobs by when their messages come, and how large they
are? Two kinds of launches in random order, by sidecars of the shipped code beside the shipped provider over mutual TLS.

A game is won by more than chance when the area under the curve (AUC) of the best of three attackers is above 0.5.
`timing_games` states which games there are and how many rounds they have.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.figures import Figures
from evaluation.privacy.synthetic_release import ARCHETYPES, Universe
from evaluation.privacy.timing_attack import TICKET, Launch, Result, Seen, distinguish
from evaluation.privacy.timing_games import CONTROL, Game, Ordered, Plan
from evaluation.privacy.timing_sites import Sites, sites

WORKERS = 20
"""Sidecars at once. They sleep most of the 0.6 to 4 s that a launch lasts; two cores are about two thirds busy. The
control shows whether the attackers still find a leak of 2 ms beside so many others."""
MAX_AUC, MAX_END = 0.55, 0.6
"""What a game must not exceed: its value, and the upper end of its interval."""
QUICK_ARCHETYPES = 400


@dataclass
class Played:
    """What has been played with one implementation of the group."""

    rounds: list[dict[str, list[Launch]]] = field(default_factory=list)
    """The launches of each round, by kind."""
    work_seconds: list[float] = field(default_factory=list)
    """How long the work before messages took."""

    def result(self, game: Game, seed: int) -> Result:
        """How well the provider distinguishes the two sides of a game."""
        launches = [
            (one, int(kind in game.second)) for kind in game.kinds for done in self.rounds for one in done.get(kind, ())
        ]
        return distinguish([one for one, _ in launches], [label for _, label in launches], seed, game.after)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """All games; one row each, and `timing_auc_max` over all of them. The short form has three of the games."""
    universe = Universe(seed, QUICK_ARCHETYPES if quick else ARCHETYPES)
    played = {True: Played(), False: Played()}
    with sites(universe) as where:
        plan = Plan(universe, where, random.Random(seed), quick)
        asyncio.run(_play(plan, where, played))
    worst: Result | None = None
    for sodium, games in plan.games.items():
        for game in games:
            result = played[sodium].result(game, seed)
            _row(figures, f"timing_auc_{game.name}{'' if sodium else '_python'}", result)
            worst = max(worst or result, result)
        if games:
            name, work = "" if sodium else "_python", played[sodium].work_seconds
            figures.add(f"timing_work_p999_seconds{name}", float(np.quantile(work, 0.999)), interval=f"n={len(work)}")
    control = played[True].result(CONTROL, seed)
    found = control.auc - control.half_width > 0.5
    note = f"+-{control.half_width:.3f} n={control.launches}, 2 ms of work before a message"
    figures.add("timing_auc_control", control.auc, "interval above 0.5", found, note)
    assert worst is not None
    _row(figures, "timing_auc_max", worst)


def _row(figures: Figures, name: str, result: Result) -> None:
    holds = result.auc <= MAX_AUC and result.auc + result.half_width < MAX_END
    note = f"+-{result.half_width:.3f} n={result.launches}, {result.attacker}"
    figures.add(name, result.auc, f"<= {MAX_AUC:g}, interval below {MAX_END:g}", holds, note)


async def _play(plan: Plan, where: Sites, played: Mapping[bool, Played]) -> None:
    """All rounds of launches."""
    async with _Workers() as workers:
        for one in plan.rounds():
            await workers.run(one.launches, where, played[one.sodium])


class _Workers:
    """Processes that launch, one job after the other in each."""

    def __init__(self) -> None:
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> _Workers:
        pipe = asyncio.subprocess.PIPE
        for _ in range(WORKERS):
            self._processes.append(
                await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "evaluation.privacy.launch_worker", stdin=pipe, stdout=pipe
                )
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        await asyncio.gather(*(process.wait() for process in self._processes))

    async def run(self, orders: Sequence[Ordered], where: Sites, played: Played) -> None:
        """Carry out all orders, and add what was seen of them."""
        waiting, done = list(orders), dict[str, dict[str, Any]]()

        async def work(number: int, process: asyncio.subprocess.Process) -> None:
            assert process.stdin and process.stdout
            while waiting:
                order = waiting.pop().order
                folder = str(Path(order.settings["state_folder"]) / f"{number}")
                data = {**asdict(order), "settings": {**order.settings, "state_folder": folder}}
                process.stdin.write(json.dumps({**data, "course": order.course.value}, default=str).encode() + b"\n")
                await process.stdin.drain()
                done[order.launch] = json.loads(await process.stdout.readline())

        await asyncio.gather(*(work(number, process) for number, process in enumerate(self._processes)))
        seen = _logged(where)
        launches: dict[str, list[Launch]] = defaultdict(list)
        for kind, condition, order in orders:
            report = done[order.launch]
            tickets = [Seen(TICKET, at, at, 0) for at in report["tickets"]]
            messages = (*tickets, *seen[order.launch])
            launches[kind].append(Launch(kind, condition, messages))
            played.work_seconds += report["work_seconds"]
        played.rounds.append(launches)


def _logged(where: Sites) -> dict[str, list[Seen]]:
    """What the providers have seen, by launch."""
    seen: dict[str, list[Seen]] = defaultdict(list)
    for log in where.logs.values():
        for line in log.read_text().splitlines():
            data = json.loads(line)
            seen[data["launch"]].append(Seen(data["method"], data["came"], data["answered"], data["bytes"]))
    return seen
