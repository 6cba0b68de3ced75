"""Suspects: failures that one node alone reports. They make no row; another node can confirm or refute them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_learning.evidence import Trial, on_their_device
from pharoah_learning.incompatibility import title_of
from pharoah_learning.opinions import NodeOutcome, NodeOutcomes
from pharoah_learning.release import Suspect
from pharoah_protocol.vocabulary import Outcome, Rung


def find_suspects(trials: Iterable[Trial]) -> list[Suspect]:
    """Per server configuration and job (rung `exact`): each node that alone reports a failure.

    The fingerprints of the trials must be readable, as those of `usable_trials` are.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Trial]] = defaultdict(list)
    for trial in on_their_device(trials):
        tokens = rung_tokens(Fingerprint.from_json(trial.fingerprint), Rung.EXACT)
        groups[trial.context_id, tokens].append(trial)
    return [suspect for _, group in sorted(groups.items()) for suspect in _find_suspects(group)]


def _find_suspects(trials: list[Trial]) -> list[Suspect]:
    outcomes = NodeOutcomes.from_outcomes(NodeOutcome(trial.node, trial.outcome) for trial in trials)
    if outcomes.find_agreed_failure() is not None:
        return []
    found = []
    for node in sorted(outcomes.failing):
        counts = outcomes.by_node[node]
        outcome = max((one for one in counts if one is not Outcome.OK), key=lambda one: (counts[one], one.code))
        own = [trial for trial in trials if trial.node == node]
        found.append(
            Suspect(
                node=node,
                context_id=own[0].context_id,
                device_id=own[0].device_id,
                outcome=outcome,
                failures=counts[outcome],
                runs=counts.total(),
                title=title_of(own),
                refuting=len(outcomes.working),
                content=min(trial.content for trial in own if trial.outcome is outcome),
            )
        )
    return found
