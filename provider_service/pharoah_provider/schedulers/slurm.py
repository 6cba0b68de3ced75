"""Slurm: the state DRAIN, with a reason (scontrol(1))."""

from pharoah_provider.schedulers._scheduler import MARK, NodeOrder, Scheduler


def _drain(order: NodeOrder) -> str:
    """A node that people have drained keeps their reason, so that it is not resumed when ours is over."""
    return _where(order, f"none|'{MARK}'*", f'State=DRAIN Reason="{order.marked_reason}"')


def _back(order: NodeOrder) -> str:
    return _where(order, f"'{MARK}'*", "State=RESUME")


def _where(order: NodeOrder, reasons: str, change: str) -> str:
    """Change the state of a node that is drained for one of some reasons: `%E` is the reason, `none` for a node that is
    in service (sinfo(1))."""
    return (
        f'sinfo --noheader --nodes={order.node} --format=%E | {{ read -r reason; case "$reason" in {reasons}) '
        f"scontrol update NodeName={order.node} {change};; esac; }}"
    )


SCHEDULER = Scheduler("slurm", "drains nodes, and resumes those that were drained for our reason", _drain, _back)
