"""Simulated production runs of 240 hosts whose software changes while they run: the second simulator of pairs.

It shares nothing with `simulated_runs`. Every host has one value of each fact, such as one driver, and new values are
rolled out rack by rack; some hosts stay behind. Hosts differ, racks differ, and a few hosts are lemons on which
whatever runs fails more often; archetypes feel that to different degrees, and nobody records it. Failures also change
from week to week, for each archetype in its own way. Users stop running what fails, cancel runs before they fail,
report some runs twice, and a few outcomes are wrong. Some pairs of an archetype and a value have a hidden cause of
their own: half of the hosts with the value share something that only this archetype suffers from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from pharoah_learning.observations import Flags, Observations

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

HOSTS, RACKS, TENANTS, SCALES = 240, 12, 9, 4
WEEKS, WEEKS_OF_MONTH = 26, 4
STATIC_FACTS = {"gpu": 3}
"""Facts of a rack that never change, and how many values they have."""
ROLLED_OUT_FACTS = {"driver": 4, "firmware": 3, "kernel": 3}
"""Facts of which new values are rolled out, rack by rack."""
FLAGS = 2
"""Properties that a host has or has not, which do not exclude each other."""
HOST_SPREAD, RACK_SPREAD, ARCHETYPE_SPREAD, CONTEXT_SPREAD = 0.35, 0.25, 0.4, 0.2
"""Standard deviations of what these add to the log odds of a failure for every archetype."""
SENSITIVITY_SPREAD = 0.4
"""How differently archetypes feel what hosts and racks add: the standard deviation of the logarithm of a factor."""
PAIR_SPREAD = 0.1
"""Standard deviation of what each ordinary pair adds: no two programs are hit in exactly the same way."""
WEEK_STEP = 0.12
"""Standard deviation of the change of an archetype's log odds from one week to the next; half of it is common."""
LEMON_RATIO, LEMON_FAILURE = 0.03, 2.2
BEHIND_RATIO = 0.12
"""The share of the hosts that miss a roll-out."""
OWN_CAUSE_FAILURE = 1.8
"""What a hidden cause of a pair adds on the hosts that have it: half of those with the value."""
GIVEN_UP_FAILURES, GIVEN_UP_RATIO, STILL_RUN_RATIO = 3, 0.3, 0.3
"""A tenant gives up an archetype with a value after so many failures, if they are such a share of its runs there; so
many of its later runs there are still made."""
CANCELLED_OK_RATIO, CANCELLED_FAILING_RATIO = 0.04, 0.15
"""Runs that users cancel, which are not reported: they see trouble come."""
REPEATED_OK_RATIO, REPEATED_FAILED_RATIO = 0.02, 0.04
"""Runs that are reported twice."""
WRONG_FAILED_RATIO, WRONG_OK_RATIO = 0.04, 0.01
"""Outcomes that are reported as their opposite: runs that fail and are said to be well, and the other way round."""


class Strength(StrEnum):
    """What a pair of an archetype and a context is in truth."""

    STRONG = "strong"
    MEDIUM = "medium"
    WEAK = "weak"
    OWN_CAUSE = "own cause"
    """It has no effect; a hidden cause of its own makes it look so."""


ODDS_RATIOS = {Strength.STRONG: (4.0, 6.0), Strength.MEDIUM: (2.5, 2.5), Strength.WEAK: (1.6, 1.6)}


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """A fleet; the figures use the usual one."""

    runs: int
    archetypes: int = 10
    strong: int = 8
    medium: int = 8
    weak: int = 5
    own_cause: int = 4
    failing_ratio: float = 0.13
    """Runs that fail, before outcomes are reported."""


@dataclass(frozen=True)
class RolloutFleet:
    """Runs, and the truth about them."""

    seen: Observations
    strengths: dict[tuple[int, int], Strength]
    """Pairs of an archetype and a context; all others have none."""
    probability: Array
    """Shape (runs,): that the run is reported as failed."""
    harmless: Array
    """Shape (runs, contexts): the same if the pair with this context had no effect of its own."""


def simulate_rollouts(settings: RolloutSettings, seed: int) -> RolloutFleet:
    """Runs of one fleet. The fleet (hosts, roll-outs, pairs) depends on the seed as well."""
    rng = np.random.default_rng([61, seed])
    hosts = _Hosts.draw(rng)
    pairs = _Pairs.draw(rng, settings, hosts)
    users = _Users.draw(rng, settings)
    base = 0.0
    # The first two passes are to find how often runs fail on average, which depends on what users give up.
    for last in (False, False, True):
        drawn = _draw_runs(np.random.default_rng([62, seed]), settings, hosts, pairs, users, base)
        if not last:
            base += brentq(lambda more, odds=drawn.log_odds: expit(odds + more).mean() - settings.failing_ratio, -9, 9)
    return _reported(rng, drawn, pairs, hosts)


class _Hosts(NamedTuple):
    """What the hosts have, week by week."""

    rack: Codes
    contexts: tuple[str, ...]
    in_context: Flags
    """Shape (weeks, hosts, contexts)."""
    weakness: Array
    """Shape (hosts,): what the host, its rack and a lemon add to the log odds."""
    popularity: Array

    @classmethod
    def draw(cls, rng: np.random.Generator) -> _Hosts:
        rack = np.repeat(np.arange(RACKS), HOSTS // RACKS)
        names, columns = [], []
        for fact, values in STATIC_FACTS.items():
            value = rng.permutation(np.arange(RACKS) % values)[rack]
            names += [f"{fact}={fact}{number}" for number in range(values)]
            columns.append(np.broadcast_to(value[:, None] == np.arange(values), (WEEKS, HOSTS, values)))
        for fact, values in ROLLED_OUT_FACTS.items():
            value = _rolled_out(rng, rack, values)
            names += [f"{fact}={100 + 10 * number}" for number in range(values)]
            columns.append(value[:, :, None] == np.arange(values))
        for number in range(FLAGS):
            of_rack = rng.beta(0.8, 0.8, RACKS)
            has = rng.random(HOSTS) < of_rack[rack]
            names.append(f"flag{number}")
            columns.append(np.broadcast_to(has[:, None], (WEEKS, HOSTS, 1)))
        weakness = rng.normal(0, HOST_SPREAD, HOSTS) + rng.normal(0, RACK_SPREAD, RACKS)[rack]
        weakness += LEMON_FAILURE * (rng.random(HOSTS) < LEMON_RATIO)
        return cls(rack, tuple(names), np.concatenate(columns, axis=2), weakness, rng.gamma(3.0, size=HOSTS))


def _rolled_out(rng: np.random.Generator, rack: Codes, values: int) -> Codes:
    """The value of each host in each week, shape (weeks, hosts). Every host begins with one of the first two."""
    value = np.broadcast_to(rng.integers(0, 2, RACKS)[rack], (WEEKS, HOSTS)).copy()
    week = np.arange(WEEKS)[:, None]
    for number in range(1, values):
        begins = WEEKS * (number - 0.5) / values + rng.uniform(-2, 2)
        of_rack = begins + rng.permutation(RACKS) * rng.uniform(0.3, 0.9)
        at = of_rack[rack] + rng.exponential(0.7, HOSTS)
        at[rng.random(HOSTS) < BEHIND_RATIO] = WEEKS
        value = np.where((week >= at) & (value < number), number, value)
    return value


class _Pairs(NamedTuple):
    """What pairs of an archetype and a context add to the log odds."""

    strengths: dict[tuple[int, int], Strength]
    own: Array
    """Shape (archetypes, contexts): the effects of the pairs that are incompatible."""
    ordinary: Array
    """The same of everything else: what contexts do to all archetypes, and the small differences between pairs."""
    hidden: Array
    """Shape (archetypes, hosts, contexts): what hidden causes of single pairs add where the host has the context."""

    @classmethod
    def draw(cls, rng: np.random.Generator, settings: RolloutSettings, hosts: _Hosts) -> _Pairs:
        shape = settings.archetypes, len(hosts.contexts)
        kinds = [Strength.STRONG] * settings.strong + [Strength.MEDIUM] * settings.medium
        kinds += [Strength.WEAK] * settings.weak + [Strength.OWN_CAUSE] * settings.own_cause
        places = rng.choice(shape[0] * shape[1], len(kinds), replace=False)
        strengths = {(int(at) // shape[1], int(at) % shape[1]): kind for at, kind in zip(places, kinds, strict=True)}
        own, hidden = np.zeros(shape), np.zeros((shape[0], HOSTS, shape[1]))
        for (a, c), kind in strengths.items():
            if kind is Strength.OWN_CAUSE:
                hidden[a, rng.random(HOSTS) < 0.5, c] = OWN_CAUSE_FAILURE
            else:
                own[a, c] = np.log(rng.uniform(*ODDS_RATIOS[kind]))
        ordinary = np.maximum(0, rng.normal(0, CONTEXT_SPREAD, shape[1])) + rng.normal(0, PAIR_SPREAD, shape)
        return cls(strengths, own, ordinary, hidden)


class _Users(NamedTuple):
    """Who runs what and where, and what that adds to the log odds."""

    archetypes_of_tenant: Array
    """Shape (tenants, archetypes): logarithms of preferences."""
    racks_of_tenant: Array
    scales_of_tenant: Array
    archetype: Array
    """Shape (weeks, archetypes): what the archetype adds in each week."""
    tenant: Array
    scale: Array
    sensitivity: Array
    """Shape (archetypes,): by which factor it feels what hosts add."""

    @classmethod
    def draw(cls, rng: np.random.Generator, settings: RolloutSettings) -> _Users:
        steps = rng.normal(0, WEEK_STEP / np.sqrt(2), (WEEKS, 1)) + rng.normal(
            0, WEEK_STEP / np.sqrt(2), (WEEKS, settings.archetypes)
        )
        popularity = rng.normal(0, 0.5, settings.archetypes)
        return cls(
            popularity + rng.normal(0, 0.7, (TENANTS, settings.archetypes)),
            rng.normal(0, 0.7, (TENANTS, RACKS)),
            rng.normal(0, 0.6, (TENANTS, SCALES)),
            rng.normal(0, ARCHETYPE_SPREAD, settings.archetypes) + np.cumsum(steps, axis=0),
            rng.normal(0, 0.3, TENANTS),
            np.linspace(0, 0.8, SCALES),
            np.exp(rng.normal(0, SENSITIVITY_SPREAD, settings.archetypes)),
        )


class _Drawn(NamedTuple):
    """Runs that were made, one entry for each."""

    week: Codes
    tenant: Codes
    archetype: Codes
    scale: Codes
    host: Codes
    log_odds: Array
    failed: Flags


def _draw_runs(
    rng: np.random.Generator, settings: RolloutSettings, hosts: _Hosts, pairs: _Pairs, users: _Users, base: float
) -> _Drawn:
    """Week by week, because what users run depends on what failed before."""
    shape = TENANTS, settings.archetypes, len(hosts.contexts)
    failures, runs = np.zeros(shape), np.zeros(shape)
    parts = []
    for week in range(WEEKS):
        wanted = settings.runs * (week + 1) // WEEKS - settings.runs * week // WEEKS
        candidates = 2 * wanted
        tenant = rng.integers(0, TENANTS, candidates)
        archetype = _chosen(rng, users.archetypes_of_tenant[tenant])
        scale = _chosen(rng, users.scales_of_tenant[tenant])
        rack = _chosen(rng, users.racks_of_tenant[tenant])
        of_rack = hosts.popularity.reshape(RACKS, -1)
        host = rack * of_rack.shape[1] + _chosen(rng, np.log(of_rack[rack]))
        has = hosts.in_context[week][host]
        given_up = (failures >= GIVEN_UP_FAILURES) & (failures >= GIVEN_UP_RATIO * runs)
        avoided = (given_up[tenant, archetype] & has).any(axis=1) & (rng.random(candidates) >= STILL_RUN_RATIO)
        made = np.flatnonzero(~avoided)[:wanted]
        tenant, archetype, scale, host, has = (part[made] for part in (tenant, archetype, scale, host, has))
        log_odds = (
            base
            + users.archetype[week, archetype]
            + users.tenant[tenant]
            + users.scale[scale]
            + users.sensitivity[archetype] * hosts.weakness[host]
            + (has * (pairs.own + pairs.ordinary)[archetype]).sum(axis=1)
            + (has * pairs.hidden[archetype, host]).sum(axis=1)
        )
        failed = rng.random(len(made)) < expit(log_odds)
        for context in range(shape[2]):
            there = tenant[has[:, context]], archetype[has[:, context]]
            np.add.at(runs[:, :, context], there, 1)
            np.add.at(failures[:, :, context], there, failed[has[:, context]])
        parts.append(_Drawn(np.full(len(made), week), tenant, archetype, scale, host, log_odds, failed))
    return _Drawn(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _chosen(rng: np.random.Generator, preferences: Array) -> Codes:
    """One choice for each row, with the softmax of the row as probabilities."""
    return np.asarray((preferences + rng.gumbel(size=preferences.shape)).argmax(axis=1))


def _reported(rng: np.random.Generator, drawn: _Drawn, pairs: _Pairs, hosts: _Hosts) -> RolloutFleet:
    """What is known of the runs: some are cancelled, some come twice, some outcomes are wrong."""
    cancelled = np.where(drawn.failed, CANCELLED_FAILING_RATIO, CANCELLED_OK_RATIO)
    repeated = np.where(drawn.failed, REPEATED_FAILED_RATIO, REPEATED_OK_RATIO)
    times = np.where(rng.random(len(drawn.failed)) < cancelled, 0, 1 + (rng.random(len(drawn.failed)) < repeated))
    wrong = rng.random(len(drawn.failed)) < np.where(drawn.failed, WRONG_FAILED_RATIO, WRONG_OK_RATIO)
    parts: list[Any] = [np.repeat(part, times) for part in drawn._replace(failed=drawn.failed ^ wrong)]
    drawn = _Drawn(*parts)
    has = hosts.in_context[drawn.week, drawn.host]
    seen = Observations(
        tuple(f"a{number}" for number in range(len(pairs.own))),
        hosts.contexts,
        drawn.archetype,
        has,
        {"tenant": drawn.tenant, "scale": drawn.scale, "month": drawn.week // WEEKS_OF_MONTH},
        drawn.failed,
        {"host": drawn.host},
    )
    without = drawn.log_odds[:, None] - has * pairs.own[drawn.archetype]
    return RolloutFleet(seen, pairs.strengths, _as_reported(drawn.log_odds), _as_reported(without))


def _as_reported(log_odds: Array) -> Array:
    """The probability that a reported run is reported as failed: runs that fail are cancelled and repeated more often,
    and outcomes may be wrong."""
    p = expit(log_odds)
    failed = p * (1 - CANCELLED_FAILING_RATIO) * (1 + REPEATED_FAILED_RATIO)
    share = failed / (failed + (1 - p) * (1 - CANCELLED_OK_RATIO) * (1 + REPEATED_OK_RATIO))
    return np.asarray(share * (1 - WRONG_FAILED_RATIO) + (1 - share) * WRONG_OK_RATIO)
