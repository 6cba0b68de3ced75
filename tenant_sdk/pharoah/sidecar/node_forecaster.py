"""Forecasts failures of this node, from the provider's hazard model and exact features of the node's signals.

The agent of the node hands over both. The signature shows that the model is the provider's, the same that all agents
have. Nothing is asked outside of the node, and nothing leaves it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import isfinite
from pathlib import Path

from pharoah._settings import Settings
from pharoah.local_alerts import NodeForecast
from pharoah.sidecar.agent_client import ask_forecast
from pharoah_protocol.agent_messages import ForecastAnswer
from pharoah_protocol.hazard_model import HazardModelError, PublishedHazardModel
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import HeadError, is_signed, read_public_key

log = logging.getLogger("pharoah.sidecar")

FIRST_SECONDS, AGAIN_SECONDS = 5.0, 60.0
"""When the agent is asked: features change once a minute."""
OLDEST_SECONDS = 35 * 24 * 3600.0
"""Models that were made before are not used: a provider learns from four weeks."""


class NodeForecaster:
    """Keeps the model that was checked last."""

    def __init__(self, settings: Settings, wall: Callable[[], float] = time.time) -> None:
        """`wall` gives unix seconds."""
        self._settings, self._wall = settings, wall
        self._checked = ForecastAnswer()
        """The answer whose model is in use or was rejected."""
        self._model: PublishedHazardModel | None = None

    async def follow(self, found: Callable[[NodeForecast | None], None]) -> None:
        """Ask again and again, until it is cancelled. None: there is no forecast."""
        await asyncio.sleep(FIRST_SECONDS)
        while True:
            found(await self.forecast())
            await asyncio.sleep(AGAIN_SECONDS)

    async def forecast(self) -> NodeForecast | None:
        """The forecast for this node now; None without an agent or a model of the provider."""
        settings = self._settings
        answer = await ask_forecast(settings.node_socket, settings.timeout_seconds, settings.service_users)
        model = self._check_model(answer)
        if model is None or self._wall() - model.made_at > OLDEST_SECONDS:
            return None
        forecast = model.forecast({name: value for name, value in answer.features.items() if isfinite(value)})
        return NodeForecast(
            probability=forecast.probability[-1],
            hours=model.horizons[-1],
            resource=model.likely_resource(forecast),
            alarming=model.is_alarming(forecast),
            failures=model.failures,
            nodes=model.nodes,
        )

    def _check_model(self, answer: ForecastAnswer) -> PublishedHazardModel | None:
        """The model of an answer, if the provider has signed it. What was checked is kept: it seldom changes."""
        if not answer.model:
            return None
        if (answer.model, answer.signature) != (self._checked.model, self._checked.signature):
            self._checked, self._model = answer, None
            try:
                key = read_public_key(Path(self._settings.provider_key_file))
                content = answer.model.encode()
                if is_signed(signed_messages.hazard_model(content), bytes.fromhex(answer.signature), key):
                    self._model = PublishedHazardModel.decode(content)
                else:
                    log.warning("the agent of this node hands out a hazard model that the provider has not signed")
            except (HeadError, HazardModelError, ValueError, OSError) as error:
                log.warning("the hazard model of this node's agent is not used: %s", error)
        return self._model
