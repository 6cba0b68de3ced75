"""The attacker of the games about times: what it reads off the messages of a launch, and how well that separates two
kinds.

Three attackers: the one gap or size that separates best, a linear function of all of them, and the nearest neighbours.
Each is fitted on four fifths of the launches and judged on the fifth that it has not seen. Values are ranked within
each condition (rows of the table, fresh or warm), which an attacker knows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from evaluation.privacy.table_enumeration import auc

Floats = NDArray[np.float64]
Attacker = Callable[[Floats, Floats, Floats], Floats]
"""Fitted on launches and labels, gives the scores of other launches."""
FOLDS, NEIGHBOURS, RIDGE = 5, 15, 1.0
IGNORED = ("Report", "EndRun", "WatchAlerts")
"""Their times follow from JoinRun and from the end of the job, which is no secret."""
TICKET = "ticket"


class Seen(NamedTuple):
    """One message, as the provider's side sees it."""

    method: str
    came: float
    """Monotonic seconds."""
    answered: float
    bytes: int


@dataclass(frozen=True)
class Launch:
    """Everything that is seen of one launch."""

    kind: str
    condition: str
    messages: tuple[Seen, ...]


class Result(NamedTuple):
    """How well two kinds are distinguished."""

    auc: float
    half_width: float
    """Half of the width of its 95 % interval."""
    launches: int
    attacker: str


def features(launch: Launch, after: str = "") -> dict[str, float]:
    """Gaps from message to message and from answer to message, and sizes; only of messages after the method `after`."""
    found: dict[str, float] = {}
    counts: dict[str, int] = defaultdict(int)
    messages = sorted((m for m in launch.messages if m.method not in IGNORED), key=lambda m: m.came)
    wanted = not after
    for before, now in pairwise(messages):
        wanted |= before.method == after
        counts[now.method] += 1
        name = f"{now.method} {counts[now.method]}"
        answers = [m.answered for m in messages if m.answered <= now.came]
        if wanted:
            found[f"{name}: after the answer before it"] = now.came - max(answers, default=before.came)
            if not after:
                found[f"{name}: after the message before it"] = now.came - before.came
                found[f"{name}: bytes"] = float(now.bytes)
    return found


def distinguish(launches: Sequence[Launch], labels: Sequence[int], seed: int, after: str = "") -> Result:
    """The best of the three attackers. Raises ValueError when only one kind is there."""
    values, y = _ranked(launches, after), np.array(labels, dtype=np.float64)
    positives = int(y.sum())
    if not 0 < positives < len(y):
        raise ValueError("a game needs launches of both kinds")
    scores = {name: _out_of_fold(attacker, values, y, seed) for name, attacker in ATTACKERS.items()}
    found = {name: auc(score, y.astype(int)) for name, score in scores.items()}
    best = max(found, key=lambda name: found[name])
    half = 1.96 * sqrt((len(y) + 1) / (12 * positives * (len(y) - positives)))
    return Result(found[best], half, len(y), best)


def _ranked(launches: Sequence[Launch], after: str) -> Floats:
    """One row per launch; each value is its rank within the condition of the launch, from -0.5 to 0.5.

    What comes `after` a method has the same times in all conditions, and is ranked over all launches.
    """
    rows = [features(launch, after) for launch in launches]
    names = sorted({name for row in rows for name in row})
    values = np.array([[row.get(name, 0.0) for name in names] for row in rows])
    conditions = np.array(["" if after else launch.condition for launch in launches])
    for condition in np.unique(conditions):
        here = conditions == condition
        values[here] = (rankdata(values[here], axis=0) - 0.5) / here.sum() - 0.5
    return values


def _out_of_fold(attacker: Attacker, values: Floats, labels: Floats, seed: int) -> Floats:
    folds = np.empty(len(labels), dtype=int)
    draw = np.random.default_rng(seed)
    for label in (0, 1):
        members = draw.permutation(np.flatnonzero(labels == label))
        folds[members] = np.arange(len(members)) % FOLDS
    scores = np.empty(len(labels))
    for fold in range(FOLDS):
        held, rest = folds == fold, folds != fold
        # Ranks make the scores of the folds comparable: a linear function may have another scale in each.
        scores[held] = rankdata(attacker(values[rest], labels[rest], values[held])) / held.sum()
    return scores


def _one_value(values: Floats, labels: Floats, others: Floats) -> Floats:
    distances = [auc(column, labels.astype(int)) - 0.5 for column in values.T]
    best = int(np.argmax(np.abs(distances)))
    return np.asarray(others[:, best] * np.sign(distances[best]))


def _linear(values: Floats, labels: Floats, others: Floats) -> Floats:
    centred = labels - labels.mean()
    weights = np.linalg.solve(values.T @ values + RIDGE * np.eye(values.shape[1]), values.T @ centred)
    return np.asarray(others @ weights)


def _neighbours(values: Floats, labels: Floats, others: Floats) -> Floats:
    distances = ((others[:, None, :] - values[None, :, :]) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, :NEIGHBOURS]
    return np.asarray(labels[nearest].mean(axis=1))


ATTACKERS: Mapping[str, Attacker] = {
    "one value": _one_value,
    "linear": _linear,
    "nearest neighbours": _neighbours,
}
