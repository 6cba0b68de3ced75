"""Kubernetes: a taint that keeps new pods away and lets running ones end (kubernetes.io, taints and tolerations)."""

from pharoah_provider.schedulers._scheduler import NodeOrder, Scheduler

TAINT = "pharoah.dev/drained"


def _drain(order: NodeOrder) -> str:
    return (
        f"kubectl taint nodes {order.node} {TAINT}=true:NoSchedule --overwrite && "
        f'kubectl annotate nodes {order.node} --overwrite {TAINT}="{order.marked_reason}"'
    )


def _back(order: NodeOrder) -> str:
    """`kubectl taint` fails for a taint that is not there, which is what we want."""
    return (
        f"kubectl taint nodes {order.node} {TAINT}:NoSchedule- 2>/dev/null && "
        f"kubectl annotate nodes {order.node} {TAINT}- || true"
    )


SCHEDULER = Scheduler("kubernetes", "taints nodes so that no new pods come, and removes our taint", _drain, _back)
