"""Kubernetes ends a pod: it is deleted, evicted, or its node is drained. Which of them, a pod cannot see."""

from __future__ import annotations

from pharoah.end_causes._cause import EndCause, EndFacts, JudgedEnd
from pharoah_protocol.vocabulary import EndState


def _judge(facts: EndFacts) -> JudgedEnd | None:
    in_pod = "KUBERNETES_SERVICE_HOST" in facts.environ
    return JudgedEnd(EndState.CANCELLED) if in_pod and facts.terminated_at is not None else None


KUBERNETES = EndCause("kubernetes", "a pod that is asked to end, by the variables of a pod and the signal", 30, _judge)
