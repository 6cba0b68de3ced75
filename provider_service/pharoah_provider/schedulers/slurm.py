"""Slurm: the state DRAIN, with a reason (scontrol(1))."""

from pharoah_provider.schedulers._scheduler import MARK, NodeOrder, Scheduler


def _drain(order: NodeOrder) -> str:
    return f'scontrol update NodeName={order.node} State=DRAIN Reason="{order.marked_reason}"'


def _back(order: NodeOrder) -> str:
    """`%E` is the reason for which a node is drained (sinfo(1))."""
    return (
        f"case \"$(sinfo --noheader --nodes={order.node} --format=%E)\" in '{MARK}'*) "
        f"scontrol update NodeName={order.node} State=RESUME;; esac"
    )


SCHEDULER = Scheduler("slurm", "drains nodes, and resumes those that were drained for our reason", _drain, _back)
