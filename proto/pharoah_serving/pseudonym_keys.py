"""One key holder's half of names: the provider runs one, an auditor the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes.ladder import lp
from pharoah_protocol.pseudonyms import period_at
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.voprf import protocol
from pharoah_protocol.voprf.group import GroupError
from pharoah_serving.errors import Exhausted, Invalid, Unknown
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import DAY_SECONDS

PSEUDONYMS_PER_DAY = 200
"""Of one organisation. Who holds one key can test a guess with every evaluation by the other: so there are few."""


class PseudonymSecrets(Protocol):
    """What a holder of a key of names needs."""

    @property
    def pseudonym_secret(self) -> bytes: ...
    @property
    def signing_key(self) -> Ed25519PrivateKey: ...


@dataclass
class PseudonymKeys:
    """Keys of the current period, from one secret. Single-threaded: belongs to the event loop."""

    secrets: PseudonymSecrets
    clock: Callable[[], float]
    names_a_day: int = PSEUDONYMS_PER_DAY
    _day: int = 0
    _used: Counter[str] = field(default_factory=Counter)

    def current(self) -> tuple[int, bytes, bytes]:
        """Period, public key, signature."""
        period = period_at(self.clock())
        _, public = self._key(period)
        return period, public, sign(signed_messages.pseudonym_key(period, public), self.secrets.signing_key)

    async def evaluate(self, who: Principal, period: int, blinded: bytes) -> tuple[bytes, bytes]:
        """Evaluated element and proof. Raises Unknown, Invalid, Exhausted."""
        if period != period_at(self.clock()):
            raise Unknown(f"period {period} is over, or has not begun")
        self._take(who)
        secret, public = self._key(period)
        try:
            evaluated, proof = await asyncio.to_thread(protocol.evaluate, secret, public, [blinded])
        except GroupError as error:
            raise Invalid(f"blinded: {error}") from None
        return evaluated[0], proof

    def recount(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """What was used today before a restart, from the audit log: a restart gives nobody new guesses."""
        self._day = int(self.clock() // DAY_SECONDS)
        for line in lines:
            if line["method"] == "EvaluatePseudonym" and line["status"] != "RESOURCE_EXHAUSTED":
                self._used[Principal(line["role"], line["name"]).organisation] += 1

    def _key(self, period: int) -> tuple[bytes, bytes]:
        return protocol.derive_key(self.secrets.pseudonym_secret, lp(b"pharoah/names/v1", period.to_bytes(8, "big")))

    def _take(self, who: Principal) -> None:
        if (day := int(self.clock() // DAY_SECONDS)) > self._day:
            self._day, self._used = day, Counter()
        if self._used[who.organisation] >= self.names_a_day:
            raise Exhausted(f"today's {self.names_a_day} names are used up")
        self._used[who.organisation] += 1
