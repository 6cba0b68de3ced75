"""A job under agents that answer anything, with streams that cannot be written and in folders full of traps.

Every job is started twice in the same surroundings, alone and under `pharoah run`, and must write the same output and
the same files and end with the same exit code. The agent is a script on the node's socket, because it is the attacker.
A few starts use a real agent and a real provider.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.figures import Figures
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.node_profile import NodeProfile
from pharoah_provider.agent.local_socket import ticket_socket
from tests.harness.exchange import RELEASE
from tests.harness.hostile_agent import AgentAnswer, answers
from tests.harness.loopback import KEYS, loopback
from tests.harness.started_jobs import PROBE, STREAMS, TRAIN, Ended, Start, started_jobs, surroundings

ANSWERS, ANSWERS_QUICK = 220, 24
"""Agents' answers in the full form and in the short one."""
TRAINING, TRAINING_QUICK = 12, 1
"""How many of them a training job meets; its dry run takes seconds, so most answers meet a job without torch."""
AT_ONCE = 2
"""Starts at the same time, as many as the smallest machine has cores."""
MAX_DELAY_SECONDS = 10.0
"""How much later than alone a job without torch may end: the sidecar starts within a second, the agent has one second
to answer (PHAROAH_TIMEOUT_S of these starts), and the machine is busy."""
FIRST_CORE = min(os.sched_getaffinity(0))
PROFILES = (
    NodeProfile(),
    NodeProfile(cpus=(FIRST_CORE,), threads=1),
    NodeProfile(cpus=(FIRST_CORE,), memory_limit_bytes=8 << 30),
)
"""Profiles of a real agent; the last one has a limit with room for the job."""


@dataclass(frozen=True)
class Attack:
    """One start, and what the agent of its node answers."""

    start: Start
    answer: AgentAnswer | None

    @property
    def name(self) -> str:
        agent = self.answer.name if self.answer else "no agent"
        return f"{agent}; {self.start.streams}; {self.start.folder}"


@dataclass(frozen=True)
class Outcome:
    """The same start alone and under Pharoah."""

    name: str
    same: bool
    delay_seconds: float
    said: str = ""
    """The end of standard error under Pharoah, for a start that differs."""


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part."""
    attacks = list(_attacks(quick, seed))
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "train.py")
        script.write_text(TRAIN)
        training = (sys.executable, str(script))
        few = TRAINING_QUICK if quick else TRAINING
        trained = [replace(attack, start=replace(attack.start, command=training)) for attack in attacks[:few]]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            plain = list(pool.map(_outcome, attacks))
            outcomes = [*plain, *pool.map(_outcome, trained)]
        outcomes += _beside_a_real_provider(training, 1 if quick else len(PROFILES))
    for outcome in outcomes:
        if not outcome.same:
            print(f"  DIFFERS: {outcome.name}\n{outcome.said}", flush=True)
    figures.details["job_start"] = [outcome.name for outcome in outcomes if not outcome.same]
    figures.ratio("job_started_ratio", sum(outcome.same for outcome in outcomes), len(outcomes), 1.0)
    figures.add("job_start_answers", len({attack.answer for attack in attacks if attack.answer}))
    longest = max(outcome.delay_seconds for outcome in plain)
    bound = MAX_DELAY_SECONDS
    figures.add("job_start_delay_seconds_max", longest, f"<= {bound:g}", longest <= bound)


def _attacks(quick: bool, seed: int) -> Iterator[Attack]:
    """Each answer with streams and a folder drawn at random, and every pair of streams and folder at least once."""
    chance = random.Random(seed)
    stated = answers(seed, ANSWERS_QUICK if quick else ANSWERS)
    pairs = surroundings()
    chance.shuffle(pairs)
    for number, answer in enumerate(stated):
        streams, folder = pairs[number % len(pairs)]
        yield Attack(Start((sys.executable, "-c", PROBE), streams, folder), answer)
    if not quick:
        for streams in STREAMS:
            yield Attack(Start((sys.executable, "-c", PROBE), streams), None)


def _outcome(attack: Attack) -> Outcome:
    with started_jobs() as root:
        alone, watched = attack.start.alone(root), attack.start.under_pharoah(root, attack.answer)
    return _compared(attack.name, alone, watched)


def _compared(name: str, alone: Ended, watched: Ended) -> Outcome:
    same = watched.same_as(alone)
    said = "" if same else watched.errors.decode(errors="replace")[-1000:]
    return Outcome(name, same, watched.seconds - alone.seconds, said)


def _beside_a_real_provider(training: Sequence[str], count: int) -> list[Outcome]:
    """The training job on nodes of a real agent, whose provider answers."""
    return asyncio.run(_with_real_agents(training, PROFILES[-count:]))


async def _with_real_agents(training: Sequence[str], profiles: Sequence[NodeProfile]) -> list[Outcome]:
    outcomes = []
    key: Ed25519PrivateKey = KEYS["n1"]
    with ExitStack() as held:
        root, site_folder = held.enter_context(started_jobs()), held.enter_context(started_jobs())
        async with loopback(site_folder, RELEASE) as site:
            settings = {
                "PHAROAH_ENDPOINT": site.endpoint,
                "PHAROAH_TOKEN_FILE": str(site_folder / "acme.token"),
                "PHAROAH_PROVIDER_KEY_FILE": str(site_folder / "provider.pub"),
            }
            for profile in profiles:
                start = Start(training, environment=settings)
                agent = ticket_socket(root / "agent.sock", "n1", "boot", key, profile, NodeStateAnswer)
                alone = await asyncio.to_thread(start.alone, root)
                async with agent:
                    watched = await asyncio.to_thread(start.under_pharoah, root)
                name = f"a real agent and provider; {json.dumps(profile.to_dict())}"
                outcomes.append(_compared(name, alone, watched))
    return outcomes
