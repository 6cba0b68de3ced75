"""Kubernetes: a taint that keeps new pods away and lets running ones end (kubernetes.io, taints and tolerations)."""

from pharoah_provider.schedulers._scheduler import NodeOrder, Scheduler

TAINT = "pharoah.dev/drained"


def _drain(order: NodeOrder) -> str:
    return (
        f"kubectl taint nodes {order.node} {TAINT}=true:NoSchedule --overwrite && "
        f'kubectl annotate nodes {order.node} --overwrite {TAINT}="{order.marked_reason}"'
    )


def _back(order: NodeOrder) -> str:
    """`kubectl taint` fails for a taint that is not there, so the taints of the node are asked for first; whatever else
    fails is seen. `kubectl annotate` accepts that there is nothing to remove."""
    return (
        f"taints=$(kubectl get node {order.node} -o jsonpath='{{.spec.taints[*].key}}') && "
        f"{{ case \" $taints \" in *' {TAINT} '*) kubectl taint nodes {order.node} {TAINT}:NoSchedule-;; esac; }} && "
        f"kubectl annotate nodes {order.node} {TAINT}-"
    )


SCHEDULER = Scheduler("kubernetes", "taints nodes so that no new pods come, and removes our taint", _drain, _back)
