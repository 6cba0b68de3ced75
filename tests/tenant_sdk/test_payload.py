"""What leaves: a closed list, and nothing in it that a job's owner would recognise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah._settings import Settings
from pharoah.sidecar.payload import ORIGINS, payload
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.catalogue import catalogue
from pharoah_archetypes.inventory import inventory
from pharoah_protocol.v1 import services
from pharoah_serving.call_guard import RULES

GRAMMARS = [entry.skeleton.text for entry in catalogue().values()]
words = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_", min_size=5, max_size=30)


def fields(message: Any) -> set[str]:
    found = set()
    for field in message.fields:
        found.add(f"{message.name}.{field.name}")
        if field.message_type is not None:
            found |= fields(field.message_type)
    return found


def test_every_field_a_tenant_can_send_is_on_the_list_and_nothing_else_is() -> None:
    sent = set()
    for service in services():
        if RULES[service.name] == "tenant":
            for method in service.methods:
                sent |= fields(method.input_type)
    assert sent == ORIGINS.keys()


@st.composite
def fingerprints(draw: Any) -> Fingerprint:
    versions = {software.name: draw(words) for software in inventory()}
    return Fingerprint(
        draw(st.binary(min_size=16, max_size=16)).hex(),
        draw(st.binary(min_size=16, max_size=16)).hex(),
        draw(st.sampled_from(GRAMMARS)),
        draw(st.dictionaries(words, words, min_size=1, max_size=4)),
        {"parameters": draw(st.integers(10**6, 10**12)), "activations": draw(st.integers(10**6, 10**12))},
        {**versions, "torch": draw(words)},
        draw(st.dictionaries(words, words, min_size=1, max_size=4)),
        {draw(words): draw(words)},
    )


@given(fingerprints(), st.sampled_from(["private", "hashed"]), st.booleans())
@settings(max_examples=60)
def test_no_string_of_a_job_reappears_in_the_bytes_that_leave(
    fingerprint: Fingerprint, privacy: str, share: bool
) -> None:
    chosen = Settings(privacy=privacy, share_outcomes=share)
    content = b"".join(outgoing.content for outgoing in payload(fingerprint, chosen))
    mappings = (fingerprint.features, fingerprint.versions, fingerprint.hardware, fingerprint.code)
    strings = {part for mapping in mappings for item in mapping.items() for part in item}
    strings |= {fingerprint.archetype, fingerprint.compute, *fingerprint.grammar.splitlines()}
    strings |= {str(size) for size in fingerprint.sizes.values()}
    for string in strings:
        if len(string) >= 5:
            forms = (string.encode(), string.encode().hex().encode(), string[::-1].encode())
            assert not any(form in content for form in forms), string
    for name in (fingerprint.archetype, fingerprint.compute):
        assert bytes.fromhex(name) not in content


def test_messages_of_two_jobs_have_the_same_sizes() -> None:
    small = Fingerprint("ab" * 16, "", GRAMMARS[0], {}, {"parameters": 1, "activations": 1}, {"torch": "2"})
    large = Fingerprint(
        "cd" * 16, "", max(GRAMMARS, key=len), {str(i): "x" * 50 for i in range(30)},
        {"parameters": 10**12, "activations": 10**12, "ranks": 4096}, {"torch": "2.13.0+" + "y" * 90},
    )  # fmt: skip
    for privacy in ("private", "hashed"):
        chosen = Settings(privacy=privacy)
        sizes = [[(o.call, len(o.content)) for o in payload(job, chosen)] for job in (small, large)]
        assert sizes[0] == sizes[1]


@pytest.mark.parametrize("privacy", ["private", "hashed"])
def test_every_message_says_where_its_fields_come_from(privacy: str) -> None:
    job = Fingerprint("ab" * 16, "", GRAMMARS[0], {}, {"parameters": 1, "activations": 1}, {"torch": "2"})
    calls = {outgoing.call: outgoing.origins for outgoing in payload(job, Settings(privacy=privacy))}
    assert ("Exchange/Lookup" in calls) == (privacy == "hashed")
    assert all(calls.values())


def test_what_a_sidecar_that_takes_orders_sends_is_shown_too() -> None:
    job = Fingerprint("ab" * 16, "", GRAMMARS[0], {}, {"parameters": 1, "activations": 1}, {"torch": "2"})
    agreed = Settings(allow_beside_job=True, guest_probe_seconds=60.0)
    calls = {outgoing.call: outgoing.origins for outgoing in payload(job, agreed)}
    assert "PHAROAH_GUEST_PROBE_S" in calls["Runs/SendProbeResult"]["SendProbeResultRequest.body"]
    assert "Consent.probe_key" in calls["Runs/JoinRun"] and "Runs/WatchOrders" in calls
    for refused in (Settings(), Settings(allow_beside_job=True), Settings(guest_probe_seconds=60.0)):
        calls = {outgoing.call: outgoing.origins for outgoing in payload(job, refused)}
        assert "Consent.probe_key" not in calls["Runs/JoinRun"] and "Runs/WatchOrders" not in calls


def test_the_payload_has_every_call_of_a_run_that_a_tenant_can_make() -> None:
    """What no run sends by itself is `pharoah reveal`, which a person types."""
    job = Fingerprint("ab" * 16, "", GRAMMARS[0], {}, {"parameters": 1, "activations": 1}, {"torch": "2"})
    sent = {
        outgoing.call
        for privacy in ("private", "hashed")
        for outgoing in payload(
            job, Settings(privacy=privacy, share_outcomes=True, allow_beside_job=True, guest_probe_seconds=60.0)
        )
    }
    methods = {
        f"{service.name}/{method.name}"
        for service in services()
        if RULES[service.name] == "tenant"
        for method in service.methods
    }
    assert sent == methods - {"Runs/Reveal"}
