"""Games about times of messages: which kinds of launches the provider tries to distinguish, and how often each is made.

Every game has the same number of rounds, whatever they show. A game that ended as soon as its bound held would end at a
moment at which chance favours the bound.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from evaluation.privacy.launch_worker import Course, Order
from evaluation.privacy.synthetic_release import Universe
from evaluation.privacy.timing_sites import LARGE, REFUSING, SMALL, Sites, jobs_of_grammar
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.catalogue import catalogue

LATE_SECONDS = 1.0
"""When a late question leaves, after the run has joined."""
PLANTED_SECONDS = 0.002
"""The work of the control, before its question. Without libsodium the leak that was found was 26 ms (ADR 25)."""
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
ROUNDS = 5
"""Rounds of every game, in the short form as well. After one round, every sixth fair game would end above its bound by
chance. After five, the half width of the smallest games is 0.03, and about one fair game in a thousand does."""


class Ordered(NamedTuple):
    """One launch of a round."""

    kind: str
    condition: str
    order: Order


class Round(NamedTuple):
    """Launches that are made together, in this order."""

    sodium: bool
    """Whether the sidecars have libsodium."""
    launches: Sequence[Ordered]


class Plan:
    """Which launches a round has."""

    def __init__(self, universe: Universe, where: Sites, draw: random.Random, quick: bool) -> None:
        self._universe, self._where, self._draw = universe, where, draw
        self._number = 0
        chosen = [game for game in GAMES if not quick or game.name in QUICK]
        slow = [game for game in chosen if game.name in WITHOUT_SODIUM and not quick]
        self.games = {True: chosen, False: slow}

    def rounds(self) -> Iterator[Round]:
        """All rounds. The kinds of all games are launched in each of them, so no game is played at a busier time than
        another. The control has one round: its leak is large."""
        for sodium, games in self.games.items():
            for number in range(ROUNDS if games else 0):
                control = [CONTROL] if sodium and number == 0 else []
                yield Round(sodium, self._launches(sodium, [*games, *control]))

    def _launches(self, sodium: bool, games: Sequence[Game]) -> list[Ordered]:
        """The launches of a round, in random order."""
        kinds = {kind: None for game in games for kind in game.kinds}
        made = [self._order(kind, number, sodium) for kind in kinds for number in range(PER_KIND.get(kind, 150))]
        self._draw.shuffle(made)
        return made

    def _order(self, kind: str, number: int, sodium: bool) -> Ordered:
        """Conditions alternate within a kind, so that both sides of a game have the same ones."""
        course, _, rest = kind.rpartition(", ") if kind not in EARLY else ("", "", kind)
        rows, warm = (LARGE, SMALL)[number % 2], number // 2 % 2 == 0
        if course == "refused":
            rows = REFUSING
        self._number += 1
        size = "large" if rest in ("largest", "encoder_decoder", "long") else "small"
        changes: dict[str, Any] = {"late_ask_seconds": LATE_SECONDS, "shutdown_timeout_seconds": 4.0}
        if course == "shared":
            changes |= {"share_outcomes": True, **self._where.auditors[rows]}
        order = Order(
            launch=f"{self._number:06d}",
            settings={**asdict(self._where.at[rows].settings()), **changes},
            fingerprint=self._fingerprint(kind, rest),
            course=_course(course, rest),
            sodium=sodium,
            warm=warm,
            busy_seconds=COMMAND_SECONDS[size],
            planted_seconds=(PLANTED_SECONDS * (rest == "long") if course == "control" else None),
        )
        return Ordered(kind, f"{rows}, {'warm' if warm else 'fresh'}", order)

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
        job = self._draw.choice(jobs_of_grammar(self._universe, grammar))
        return job if known else replace(job, archetype=self._draw.randbytes(16).hex())


def _course(course: str, rest: str) -> Course:
    if course == "late":
        return Course.LATE
    return Course.JOINED if rest in ("smallest", "largest") else Course.CHECKED
