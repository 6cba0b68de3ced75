"""Attackers that guess which archetype runs, from a row of numbers for each run that they have seen.

There are three, and the best of them counts: a vote of the nearest neighbours, a linear function of the numbers, and a
regression of the archetypes on which range each number is in. Runs are divided into five parts; each part is guessed by
attackers that were trained on the other four. The attacker that sees nothing guesses the most frequent archetype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Attacker = Callable[[Floats, Ints, Floats, int], Ints]
"""Trained on rows and their archetypes, guesses the archetypes of other rows; the last number is how many there are."""
FOLDS, NEIGHBOURS, RIDGE = 5, 15, 1.0
RANGES = 6
"""Ranges of one number, with about as many runs in each."""
PENALTIES = (2.0, 20.0)
"""Weights of the squares in the regression: one for what shows often and one for what shows rarely."""
MAX_ROUNDS = 60


class Advantage(NamedTuple):
    """How much more often the best attacker is right than the one that sees nothing."""

    value: float
    half_width: float
    """Half of the width of its 95 % interval, from the jobs in which one of the two is right more often."""
    runs: int
    """Rows that were guessed."""
    attacker: str

    @property
    def interval(self) -> str:
        """For a table."""
        return f"+-{self.half_width:.3f} n={self.runs}"


def advantage(rows: Floats, asked: Ints, archetypes: int, jobs: Ints | None = None) -> Advantage:
    """How well archetypes are recognised by their rows; never below zero.

    `jobs` has the number of the job of each row, where one job has several. By default each row is a job of its own.
    """
    fold = np.arange(len(asked)) % FOLDS
    prior = np.empty(len(asked), dtype=np.int64)
    guesses = {name: np.empty(len(asked), dtype=np.int64) for name in ATTACKERS}
    for part in range(FOLDS):
        held, rest = fold == part, fold != part
        prior[held] = np.argmax(np.bincount(asked[rest], minlength=archetypes))
        train, test = _scaled(rows[rest], rows[held])
        for name, attacker in ATTACKERS.items():
            guesses[name][held] = attacker(train, asked[rest], test, archetypes)
    gains = {name: (guess == asked).astype(float) - (prior == asked) for name, guess in guesses.items()}
    best = max(gains, key=lambda name: float(gains[name].mean()))
    half = _half_width(gains[best], np.arange(len(asked)) if jobs is None else jobs)
    return Advantage(max(0.0, float(gains[best].mean())), half, len(asked), best)


def _half_width(gains: Floats, jobs: Ints) -> float:
    """Rows of one job may be right or wrong together, so their deviations are added up before they are squared."""
    sums = np.bincount(jobs, weights=gains - gains.mean())
    return 1.96 * sqrt(float((sums**2).sum())) / len(gains)


def _scaled(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    middle, spread = train.mean(axis=0), train.std(axis=0) + 1e-9
    return (train - middle) / spread, (test - middle) / spread


def _neighbours(train: Floats, asked: Ints, test: Floats, archetypes: int) -> Ints:
    distances = (test**2).sum(axis=1)[:, None] + (train**2).sum(axis=1)[None, :] - 2 * test @ train.T
    nearest = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return np.array([np.argmax(np.bincount(asked[chosen], minlength=archetypes)) for chosen in nearest])


def _linear(train: Floats, asked: Ints, test: Floats, archetypes: int) -> Ints:
    x, other = _with_constant(train), _with_constant(test)
    targets = np.eye(archetypes)[asked]
    weights = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ targets)
    return np.asarray(np.argmax(other @ weights, axis=1))


def _regression(train: Floats, asked: Ints, test: Floats, archetypes: int, penalty: float) -> Ints:
    """A multinomial logistic regression on which range each number is in. The constant is not penalised, so that what
    shows nothing leaves the prior as it is."""
    edges = list(_edges(train))
    x, other = _with_constant(_in_ranges(train, edges)), _with_constant(_in_ranges(test, edges))
    targets = np.eye(archetypes)[asked]
    weighed = np.full((x.shape[1], 1), penalty)
    weighed[-1] = 1e-6

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(x.shape[1], archetypes)
        scores = x @ weights
        scores -= scores.max(axis=1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = -(targets * logs).sum() + 0.5 * (weighed * weights**2).sum()
        gradient = x.T @ (np.exp(logs) - targets) + weighed * weights
        return float(value), gradient.ravel()

    begin = np.zeros((x.shape[1], archetypes))
    begin[-1] = np.log(np.bincount(asked, minlength=archetypes) + 0.5)
    found: Any = minimize(loss, begin.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": MAX_ROUNDS})
    return np.asarray(np.argmax(other @ found.x.reshape(x.shape[1], archetypes), axis=1))


def _edges(train: Floats) -> Iterator[Floats]:
    """Between the ranges of each number. A number that is nearly always the same has an edge on each side of it."""
    for column in train.T:
        inner = np.unique(np.quantile(column, np.linspace(0, 1, RANGES + 1)[1:-1]))
        yield np.unique([*inner, *(inner + 1e-9)]) if len(inner) < RANGES - 1 else inner


def _in_ranges(rows: Floats, edges: list[Floats]) -> Floats:
    columns = []
    for column, between in zip(rows.T, edges, strict=True):
        place = np.searchsorted(between, column, side="left")
        columns.append(np.eye(len(between) + 1)[place])
    return np.hstack(columns)


def _with_constant(rows: Floats) -> Floats:
    return np.hstack([rows, np.ones((len(rows), 1))])


ATTACKERS: Mapping[str, Attacker] = {
    "nearest neighbours": _neighbours,
    "linear": _linear,
    **{f"regression, penalty {penalty:g}": partial(_regression, penalty=penalty) for penalty in PENALTIES},
}
