"""Games about times: can the provider distinguish two kinds of jobs by when their messages come, and how large they
are? Two kinds of launches in random order, by sidecars of the shipped code beside the shipped provider over mutual TLS.

A game is won by more than chance when the area under the curve (AUC) of the best of three attackers is above 0.5. A
game goes on until the interval of its AUC lies below 0.6, for at most `LONGEST_ROUNDS` rounds: with one round, every
sixth fair game would end above that by chance.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.figures import OUTPUT, Figures
from evaluation.privacy.exchange_site import ExchangeSite, exchange_site, release_for_node
from evaluation.privacy.launch_worker import Course, Order
from evaluation.privacy.synthetic_release import ARCHETYPES, Universe
from evaluation.privacy.timing_attack import TICKET, Launch, Result, Seen, distinguish
from evaluation.privacy.watching_provider import REFUSED
from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.release import Release
from pharoah_provider.certificates import Authority
from tests.harness.site import free_port

FOLDER = OUTPUT / "timing"
WORKERS = 20
"""Sidecars at once. They sleep most of the 0.6 to 4 s that a launch lasts; two cores are about two thirds busy. The
control shows whether the attackers still find a leak of 2 ms beside so many others."""
LARGEST_AUC, LARGEST_END = 0.55, 0.6
"""What a game must not exceed: its value, and the upper end of its interval."""
LONGEST_ROUNDS = 5
QUICK_ARCHETYPES = 400
LATE_SECONDS = 1.0
"""When a late question leaves, after the run has joined."""
PLANTED_SECONDS = 0.002
"""The work of the control, before its question. Without libsodium the leak that was found was 26 ms (ADR 25)."""
LARGE, SMALL, REFUSING = "16,384 rows", "16 rows", REFUSED
"""Tables of the providers; the first is as large as the universe allows in the short form."""
COMMAND_SECONDS = {"small": 0.02, "large": 0.15}
"""How long `pharoah run` is busy with the cost of a job between its verdict and its launch."""


@dataclass(frozen=True)
class Game:
    """Two groups of kinds of launches, which the provider tries to distinguish."""

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    after: str = ""
    """Only what comes after this method counts, where what came before is the provider's own doing."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of launches of the game."""
        return self.first + self.second


EARLY = ("recurrent, known", "recurrent, new", "encoder_decoder, known", "encoder_decoder, new")
GAMES = (
    Game("nothing", ("nothing",), EARLY),
    Game("archetype", EARLY[:2], EARLY[2:]),
    Game("known", EARLY[::2], EARLY[1::2]),
    Game("size", ("smallest",), ("largest",)),
    Game("shared", ("shared, recurrent",), ("shared, encoder_decoder",)),
    Game("late_nothing", ("late, nothing",), ("late, recurrent", "late, encoder_decoder")),
    Game("late_archetype", ("late, recurrent",), ("late, encoder_decoder",)),
    Game("refused_size", ("refused, smallest",), ("refused, largest",)),
    Game("refused", ("smallest", "largest"), ("refused, smallest", "refused, largest"), after="Decide"),
)
WITHOUT_SODIUM = ("nothing", "archetype", "shared", "late_archetype")
QUICK = ("nothing", "archetype", "known")
CONTROL = Game("control", ("control, short",), ("control, long",))
PER_KIND = {**dict.fromkeys(EARLY, 75)}
"""Launches of a kind in one round, where they are not 150: two kinds together make a side of a game."""


@dataclass
class Sites:
    """Providers that watch, and their logs."""

    at: dict[str, ExchangeSite]
    logs: dict[str, Path]
    auditors: dict[str, dict[str, str]]
    """Settings of the second key holder, by table."""


@dataclass
class Played:
    """What has been played with one implementation of the group."""

    rounds: list[dict[str, list[Launch]]] = field(default_factory=list)
    """The launches of each round, by kind."""
    rounds_of: dict[str, int] = field(default_factory=dict)
    """Name of a game to the number of its rounds. Later rounds have some of its kinds, at other times: a machine that
    was busier then would look like a leak."""
    work_seconds: list[float] = field(default_factory=list)
    """How long the work before messages took."""

    def result(self, game: Game, seed: int) -> Result:
        """How well the provider distinguishes the two sides of a game."""
        played = self.rounds[: self.rounds_of[game.name]]
        launches = [(one, int(kind in game.second)) for kind in game.kinds for done in played for one in done[kind]]
        return distinguish([one for one, _ in launches], [label for _, label in launches], seed, game.after)


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """All games; one row each, and `timing_auc_max` over all of them. The short form has three of the games."""
    universe = Universe(seed, QUICK_ARCHETYPES if quick else ARCHETYPES)
    played = {True: Played(), False: Played()}
    with sites(universe) as where:
        plan = _Plan(universe, where, random.Random(seed), quick)
        asyncio.run(_play(plan, played, seed))
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
    holds = result.auc <= LARGEST_AUC and result.auc + result.half_width < LARGEST_END
    note = f"+-{result.half_width:.3f} n={result.launches}, {result.attacker}"
    figures.add(name, result.auc, f"<= {LARGEST_AUC:g}, interval below {LARGEST_END:g}", holds, note)


class _Plan:
    """Which launches a round has."""

    def __init__(self, universe: Universe, where: Sites, draw: random.Random, quick: bool) -> None:
        self._universe, self.where, self._draw = universe, where, draw
        self._number = 0
        chosen = [game for game in GAMES if not quick or game.name in QUICK]
        slow = [game for game in chosen if game.name in WITHOUT_SODIUM and not quick]
        self.games = {True: chosen, False: slow}

    def orders(self, sodium: bool, games: Sequence[Game]) -> list[tuple[str, str, Order]]:
        """Kind, condition and order of each launch of a round, in random order."""
        kinds = {kind: None for game in games for kind in game.kinds}
        made = [self._order(kind, number, sodium) for kind in kinds for number in range(PER_KIND.get(kind, 150))]
        self._draw.shuffle(made)
        return made

    def _order(self, kind: str, number: int, sodium: bool) -> tuple[str, str, Order]:
        """Conditions alternate within a kind, so that both sides of a game have the same ones."""
        course, _, rest = kind.rpartition(", ") if kind not in EARLY else ("", "", kind)
        rows, warm = (LARGE, SMALL)[number % 2], number // 2 % 2 == 0
        if course == "refused":
            rows = REFUSING
        self._number += 1
        size = "large" if rest in ("largest", "encoder_decoder", "long") else "small"
        changes: dict[str, Any] = {"late_ask_seconds": LATE_SECONDS, "shutdown_timeout_seconds": 4.0}
        if course == "shared":
            changes |= {"share_outcomes": True, **self.where.auditors[rows]}
        order = Order(
            launch=f"{self._number:06d}",
            settings={**asdict(self.where.at[rows].settings()), **changes},
            fingerprint=self._fingerprint(kind, rest),
            course=_course(course, rest),
            sodium=sodium,
            warm=warm,
            busy_seconds=COMMAND_SECONDS[size],
            planted_seconds=(PLANTED_SECONDS * (rest == "long") if course == "control" else None),
        )
        return kind, f"{rows}, {'warm' if warm else 'fresh'}", order

    def _fingerprint(self, kind: str, rest: str) -> str:
        name = rest.partition(",")[0]
        if name == "nothing" and not kind.startswith("late"):
            return replace(self._universe.jobs[0], grammar="no grammar").to_json()
        job = self._job(name, known=rest.endswith("known"))
        if name == "nothing":  # a compiled step, which does not show its structure
            job = replace(job, features={**job.features, "compiled": "inductor"})
        return job.to_json()

    def _job(self, name: str, known: bool) -> Fingerprint:
        grammars = sorted((entry.grammar for entry in catalogue().values()), key=len)
        named = {"smallest": grammars[0], "short": grammars[0], "long": grammars[0], "largest": grammars[-1]}
        grammar = named.get(name) or catalogue().get(name, catalogue()["recurrent"]).grammar
        job = self._draw.choice(_of_grammar(self._universe, grammar))
        return job if known else replace(job, archetype=self._draw.randbytes(16).hex())


def _course(course: str, rest: str) -> Course:
    if course == "late":
        return Course.LATE
    return Course.JOINED if rest in ("smallest", "largest") else Course.CHECKED


def _of_grammar(universe: Universe, grammar: str) -> list[Fingerprint]:
    """Jobs of one archetype that the smallest table knows too, where there are any."""
    return [job for job in universe.jobs if job.grammar == grammar][:4]


async def _play(plan: _Plan, played: Mapping[bool, Played], seed: int) -> None:
    """Rounds of launches, until every game is decided."""
    async with _Workers() as workers:
        for sodium, games in plan.games.items():
            open_games, control = list(games), [CONTROL] if sodium else []
            for number in range(LONGEST_ROUNDS):
                if not open_games:
                    break
                orders = plan.orders(sodium, [*open_games, *control])
                await workers.run(orders, plan.where, played[sodium])
                played[sodium].rounds_of.update({game.name: number + 1 for game in [*open_games, *control]})
                control = []
                open_games = [game for game in open_games if _open(played[sodium].result(game, seed))]


def _open(result: Result) -> bool:
    return result.auc > LARGEST_AUC or result.auc + result.half_width >= LARGEST_END


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

    async def run(self, orders: Sequence[tuple[str, str, Order]], where: Sites, played: Played) -> None:
        """Carry out all orders, and add what was seen of them."""
        waiting, done = list(orders), dict[str, dict[str, Any]]()

        async def work(number: int, process: asyncio.subprocess.Process) -> None:
            assert process.stdin and process.stdout
            while waiting:
                order = waiting.pop()[2]
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


@contextmanager
def sites(universe: Universe) -> Iterator[Sites]:
    """Two providers with tables of 16 and of 16,384 rows, each with an auditor of names, and one that refuses."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    whole = release_for_node(universe)
    grammars = (catalogue()[name].grammar for name in ("recurrent", "encoder_decoder"))
    tokens = {rung_tokens(job, "exact") for grammar in grammars for job in _of_grammar(universe, grammar)}
    few = Release(1, tuple(row for row in whole.rows if row.tokens in tokens))
    at, logs, auditors = {}, {}, {}
    with ExitStack() as stack:
        for name, release in ((LARGE, whole), (SMALL, few), (REFUSING, few)):
            folder = FOLDER / name.replace(",", "").replace(" ", "-")
            folder.mkdir(parents=True)
            logs[name] = folder / "seen.jsonl"
            program = ("-m", "evaluation.privacy.watching_provider", str(logs[name]), name)
            at[name] = stack.enter_context(exchange_site(folder, release, program))
            auditors[name] = stack.enter_context(_auditor(folder))
        yield Sites(at, logs, auditors)


@contextmanager
def _auditor(folder: Path) -> Iterator[dict[str, str]]:
    """The auditor's process, which holds the second key of names; gives the tenant's settings."""
    files = Authority(folder / "pki", "pharoah.local").issue("auditor", ("127.0.0.1",))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pharoah_auditor.cli", "pseudonyms", "--listen", address,
         "--folder", folder / "auditor", "--tls-cert", files.certificate, "--tls-key", files.key,
         "--client-ca", folder / "pki/ca.pem", "--pseudonyms-per-day", "1000000", "--init"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        line = next((line for line in process.stdout if "auditor key for tenants:" in line), "")
        if not line:
            raise RuntimeError("the auditor has not started")
        (folder / "auditor.pub").write_text(line.rpartition(":")[2].strip())
        yield {"auditor_endpoint": address, "auditor_key_file": str(folder / "auditor.pub")}
    finally:
        process.terminate()
        process.wait()
