"""Guest probes on the wire: orders to sidecars, and their results."""

from __future__ import annotations

from pharoah_protocol.v1 import RunOrder, SendProbeResultRequest, SignedProbeOrder
from pharoah_provider.monitoring.guest_orders import GuestOrders, SignedOrder, StopOrder
from pharoah_provider.monitoring.guest_results import ProbeRejected, ProbeRejection
from pharoah_provider.storage.base import RunStore
from pharoah_serving.call_guard import caller
from pharoah_serving.clock import Clock
from pharoah_serving.errors import Invalid, Unknown
from pharoah_serving.quotas import Quotas


def run_order(order: SignedOrder | StopOrder) -> RunOrder:
    """The message for a sidecar."""
    if isinstance(order, StopOrder):
        return RunOrder(stop=order.order_id)
    return RunOrder(probe=SignedProbeOrder(body=order.body, signature=order.signature))


class GuestResults:
    """Takes the results that sidecars send."""

    def __init__(self, runs: RunStore, guests: GuestOrders, quotas: Quotas, clock: Clock) -> None:
        self._runs, self._guests, self._quotas, self._clock = runs, guests, quotas, clock

    async def take(self, request: SendProbeResultRequest) -> None:
        """Raises Exhausted, Unknown for a run that is not the caller's, Invalid with the reason for a rejection. What
        is rejected is counted, and nothing else follows from it."""
        self._quotas.check_result(caller(), self._clock.wall())
        run = await self._runs.run(request.run_id)
        try:
            if run is None or run.tenant != caller().name:
                rejected = ProbeRejected(ProbeRejection.OTHER_TENANT if run else ProbeRejection.UNKNOWN_RUN)
                self._guests.count(rejected)
                raise rejected
            self._guests.take_answer(run, request.body, request.signature)
        except ProbeRejected as rejected:
            self._quotas.count_rejected_result(caller(), self._clock.wall())
            if rejected.rejection in (ProbeRejection.OTHER_TENANT, ProbeRejection.UNKNOWN_RUN):
                raise Unknown("no such run") from None  # whether others have such a run is nobody's business
            raise Invalid(str(rejected)) from None
