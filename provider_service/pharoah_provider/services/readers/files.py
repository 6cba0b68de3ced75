"""What tenants reveal, and files of operators. The functions raise ValueError that says what is wrong."""

from __future__ import annotations

import json

from pharoah_archetypes import Fingerprint
from pharoah_benchmarks.campaign.plan import parse_plan
from pharoah_protocol.row_inputs import check_inputs
from pharoah_system.bounded_reading import MESSAGE_LIMITS, parse_json


def read_fingerprint(text: bytes) -> list[bytes]:
    """A fingerprint that rows can be made of, as it is stored."""
    fingerprint = Fingerprint.from_json(text)
    try:
        check_inputs(fingerprint)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no rows can be made of it: {error}") from None
    return [fingerprint.to_json().encode()]


def check_campaign(text: bytes) -> list[bytes]:
    """Nothing, for a campaign file that can be run. The provider then knows that it can read it in a short time."""
    parse_plan(text.decode())
    return []


def read_profile(text: bytes) -> list[bytes]:
    """A node profile as JSON. Raises UnreadableInput."""
    return [json.dumps(parse_json(text, "executor.profile", MESSAGE_LIMITS)).encode()]
