"""One holder's key of pseudonyms: the provider has one, an auditor the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes.ladder import length_prefixed
from pharoah_protocol.encoding import u64
from pharoah_protocol.pseudonyms import EvaluatedPseudonym, period_at
from pharoah_protocol.tables import signed_messages
from pharoah_protocol.tables.epoch_head import sign
from pharoah_protocol.voprf import protocol
from pharoah_protocol.voprf.group import GroupError
from pharoah_serving.costs import in_thread
from pharoah_serving.errors import Invalid, Unknown
from pharoah_serving.principals import Principal
from pharoah_serving.quotas import Quotas


class SignedPseudonymKey(NamedTuple):
    """The public key of a holder in one period, with the holder's signature."""

    period: int
    public: bytes
    signature: bytes


class PseudonymSecrets(Protocol):
    """What the holder of a pseudonym key needs."""

    @property
    def pseudonym_secret(self) -> bytes: ...
    @property
    def signing_key(self) -> Ed25519PrivateKey: ...


@dataclass
class PseudonymKeys:
    """Keys of the current period, derived from one secret. Single-threaded: belongs to the event loop."""

    secrets: PseudonymSecrets
    clock: Callable[[], float]
    quotas: Quotas = field(default_factory=Quotas)

    def current(self) -> SignedPseudonymKey:
        """The key of the current period."""
        period = period_at(self.clock())
        _, public = self._key(period)
        signature = sign(signed_messages.pseudonym_key(period, public), self.secrets.signing_key)
        return SignedPseudonymKey(period=period, public=public, signature=signature)

    async def evaluate(self, who: Principal, period: int, blinded: bytes) -> EvaluatedPseudonym:
        """The answer to a query. Raises Unknown, Invalid, Exhausted."""
        if period != period_at(self.clock()):
            raise Unknown(f"period {period} is over, or has not begun")
        self.quotas.take_pseudonym(who, self.clock())
        secret, public = self._key(period)
        try:
            evaluated, proof = await in_thread(protocol.evaluate, secret, public, [blinded])
        except GroupError as error:
            raise Invalid(f"blinded: {error}") from None
        return EvaluatedPseudonym(element=evaluated[0], proof=proof)

    def _key(self, period: int) -> protocol.KeyPair:
        return protocol.derive_key(self.secrets.pseudonym_secret, length_prefixed(b"pharoah/names/v1", u64(period)))
