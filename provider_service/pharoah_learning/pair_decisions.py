"""When the pairs of suspects decide, after how many, and how: arrays in, numbers out.

Evidence weighs by node (ADR 21). Where four nodes have run their share of the pairs, what speaks against a suspect must
be as strong without any two of them, and below that without any one. The smallest of several e-values is at most each
of them. So whichever one or two nodes are wrong, the rate of false decisions keeps its bound.

A suspect is refuted in two ways, each with half of the bound. Either no effect that matters is left whichever one node
is left out; the node that reported the failure was chosen for it, so each of these e-values is averaged with the one
without that node as well (an average of e-values is an e-value). Or the suspect fails on this node for certain, and the
others show no effect, together and each for itself: then this node is the one that is wrong.

Where two nodes of four fail for certain and all others show no effect, further pairs would only repeat it: the suspect
is given up, and these nodes are named.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pharoah_learning.models.confirmation import MAX_FALSE_BLOCK_RATE, MAX_FALSE_RATE, log_e_values
from pharoah_learning.models.mantel_haenszel import Array
from pharoah_learning.models.no_effect import MAX_FALSE_REFUTED_RATE, log_no_effect

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

MIN_BLOCKING_NODES = 4
"""Without any two of fewer nodes, one node at most would be left to speak."""
MIN_SHARE = 0.5
"""A node counts as one of these when it has run this much of an equal share of the pairs."""

_ENOUGH_TO_REFUTE = -np.log(MAX_FALSE_REFUTED_RATE / 2)
"""Evidence of no effect, as a logarithm, in each of the two ways."""


class End(IntEnum):
    """How the pairs of a suspect end."""

    OPEN = 0
    CONFIRMED = 1
    BLOCKS = 2
    REFUTED = 3
    UNDECIDED = 4
    """As many pairs as are allowed have not decided it, or two nodes are what fails."""


class PathEnds(NamedTuple):
    """Each suspect's end. All have the length of the suspects."""

    end: Counts
    """Values of `End`."""
    pairs: Counts
    """Pairs until then; all pairs where it is open."""
    log_e: Array
    """The evidence against the suspect then, without the nodes that speak most against it."""
    failing: Flags
    """Suspects by nodes: whether the suspect fails for certain on the node then, by the pairs of this node alone."""


def count_tolerated_nodes(pairs_of_nodes: Counts) -> Counts:
    """How many nodes may be wrong. `pairs_of_nodes`: the last axis has the pairs that each node has run."""
    total, seen = pairs_of_nodes.sum(axis=-1), (pairs_of_nodes > 0).sum(axis=-1)
    share = MIN_SHARE * total / np.maximum(seen, 1)
    counted = (pairs_of_nodes >= np.maximum(share, 1)[..., None]).sum(axis=-1)
    found: Counts = np.where(counted >= MIN_BLOCKING_NODES, 2, 1)
    return found


def first_ends(nodes: Counts, suspected: Flags, control: Flags, own: int, most_pairs: int) -> PathEnds:
    """The first end of each suspect, after the pairs that reach it; later pairs change nothing.

    `nodes`: the node of each pair, from 0 on; there is a pair. `suspected`, `control`: whether the run failed, suspects
    by pairs. `own`: the node that alone reported the failure; -1 where it has run no pair. `most_pairs`: after these a
    suspect is given up.
    """
    nodes, suspected, control = nodes[:most_pairs], suspected[:, :most_pairs], control[:, :most_pairs]
    suspects, pairs = suspected.shape
    places = int(nodes.max()) + 1
    ran = nodes[:, None] == np.arange(places)
    against = _so_far(suspected & ~control, ran)
    for_it = _so_far(control & ~suspected, ran)
    pairs_of_nodes = np.cumsum(ran, axis=0)
    two_may_be_wrong = count_tolerated_nodes(pairs_of_nodes) == 2
    log_e = np.where(two_may_be_wrong, *(_least_log_e(against, for_it, without) for without in (2, 1)))
    confirmed = np.maximum.accumulate(log_e >= -np.log(MAX_FALSE_RATE), axis=1)
    blocks = two_may_be_wrong & (log_e >= -np.log(MAX_FALSE_BLOCK_RATE))
    # A row that blocks is near only while every discordant pair speaks against the suspect.
    last = np.arange(pairs) == most_pairs - 1
    over = confirmed & (~two_may_be_wrong | (for_it.sum(axis=-1) > 0) | last)
    failing = _fail(against, for_it, pairs_of_nodes)
    refuted = _are_refuted(against, for_it, pairs_of_nodes, own)
    if 0 <= own < places:
        refuted |= _only_own_fails(failing, against, for_it, pairs_of_nodes, own)
    refuted &= ~confirmed
    undecided = last | (two_may_be_wrong & _only_two_fail(failing, against, for_it, pairs_of_nodes))
    order = [(blocks, End.BLOCKS), (over, End.CONFIRMED), (refuted, End.REFUTED), (undecided, End.UNDECIDED)]
    ends = np.select([where for where, _ in order], [end for _, end in order], End.OPEN)
    first = np.where((ends > 0).any(axis=1), (ends > 0).argmax(axis=1), pairs - 1)
    rows = np.arange(suspects)
    return PathEnds(ends[rows, first], first + 1, log_e[rows, first], failing[rows, first])


def _so_far(happened: Flags, ran: Flags) -> Counts:
    """Suspects by pairs by nodes: how often it has happened on each node until then."""
    found: Counts = np.cumsum(happened[:, :, None] & ran, axis=1)
    return found


@cache
def choose_kept_nodes(places: int, without: int) -> Counts:
    """Nodes by choices: 1 where a node is kept, and 0 where it is one of the `without` that are left out."""
    choices = list(combinations(range(places), min(without, places)))
    return np.array([[int(node not in left_out) for left_out in choices] for node in range(places)])


def _least_log_e(against: Counts, for_it: Counts, without: int) -> Array:
    """The evidence that stays whichever nodes are left out."""
    found: Array = np.full(against.shape[:2], np.inf)
    for kept in choose_kept_nodes(against.shape[-1], without).T:
        np.minimum(found, log_e_values(against @ kept, for_it @ kept), out=found)
    return found


def _fail(against: Counts, for_it: Counts, pairs_of_nodes: Counts) -> Flags:
    """Suspects by pairs by nodes. The bound is divided by the number of nodes, because each of them is asked."""
    asked = (pairs_of_nodes > 0).sum(axis=-1)[:, None]
    found: Flags = log_e_values(against, for_it) >= np.log(asked / MAX_FALSE_BLOCK_RATE)
    return found


def _only_two_fail(failing: Flags, against: Counts, for_it: Counts, pairs_of_nodes: Counts) -> Flags:
    """Whether two nodes fail, and the others together show no effect."""
    counts = [np.where(failing, 0, one).sum(axis=-1) for one in (against, for_it, pairs_of_nodes)]
    none_elsewhere = log_no_effect(*counts) >= -np.log(MAX_FALSE_RATE)
    found: Flags = (failing.sum(axis=-1) == 2) & none_elsewhere
    return found


def _are_refuted(against: Counts, for_it: Counts, pairs_of_nodes: Counts, own: int) -> Flags:
    found: Array = np.full(against.shape[:2], np.inf)
    for kept in choose_kept_nodes(against.shape[-1], 1).T:
        without_own = kept * (np.arange(len(kept)) != own)
        both = [log_no_effect(against @ one, for_it @ one, pairs_of_nodes @ one) for one in (kept, without_own)]
        np.minimum(found, np.logaddexp(*both) - np.log(2), out=found)
    refuted: Flags = found >= _ENOUGH_TO_REFUTE
    return refuted


def _only_own_fails(failing: Flags, against: Counts, for_it: Counts, pairs_of_nodes: Counts, own: int) -> Flags:
    """Whether the node that reported the failure fails, and the others do not, together and each for itself."""
    others = np.arange(against.shape[-1]) != own
    together = log_no_effect(against @ others, for_it @ others, pairs_of_nodes @ others) >= _ENOUGH_TO_REFUTE
    each = (log_no_effect(against, for_it, pairs_of_nodes) > 0) | (pairs_of_nodes == 0)
    enough_nodes = (pairs_of_nodes[:, others] > 0).sum(axis=-1) >= 2
    found: Flags = failing[..., own] & together & each[..., others].all(axis=-1) & enough_nodes
    return found
