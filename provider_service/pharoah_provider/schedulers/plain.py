"""Plain text for scripts of a site."""

from pharoah_provider.schedulers._scheduler import NodeOrder, Scheduler


def _drain(order: NodeOrder) -> str:
    return f"drain {order.node} {order.marked_reason}"


def _back(order: NodeOrder) -> str:
    return f"return {order.node}"


SCHEDULER = Scheduler("plain", "one line for each node: drain or return, the node, the reason", _drain, _back)
