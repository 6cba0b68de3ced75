"""Messages of the local sockets: each survives its packet, and a wrong one is refused by the name of its field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol import agent_messages, rank_messages
from pharoah_protocol.local_messages import (
    MESSAGES,
    Message,
    MessageError,
    Packet,
    decode,
    decode_answer,
    encode,
    wants_answer,
)
from pharoah_protocol.vocabulary import Resource

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=2)


def instances(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of one class. Hypothesis draws nothing for Any, and bytes for sequences, so these are drawn here."""
    drawn: dict[Any, st.SearchStrategy[Any]] = {
        dict[str, Any]: objects,
        tuple[dict[str, Any], ...]: st.tuples(objects),
        Sequence[int]: st.lists(st.integers()),
        Sequence[str]: st.lists(st.text()),
    }
    hints = get_type_hints(kind).items()
    return st.builds(kind, **{name: drawn[hint] for name, hint in hints if hint in drawn})


def test_every_class_of_the_two_modules_is_a_message() -> None:
    kinds = [kind for module in (agent_messages, rank_messages) for kind in vars(module).values()]
    defined = {kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message}
    assert defined == set(MESSAGES.values())


@pytest.mark.parametrize("verb", MESSAGES)
def test_every_message_survives_its_packet(verb: str) -> None:
    @given(instances(MESSAGES[verb]), st.booleans())
    def survives(message: Message, asks: bool) -> None:
        # Sequences come back as tuples.
        expected = type(message)(**{k: tuple(v) if isinstance(v, list) else v for k, v in vars(message).items()})
        packet = encode(message, wants_answer=asks)
        assert decode(packet) == Packet(expected, asks)
        assert wants_answer(packet) == asks or not asks, "a text may contain the words"

    survives()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"verb": "dance"}, "'dance' is not known"),
        ({"verb": ["hello"]}, "is not known"),
        ({"verb": "hello"}, "hello.rank: the field is missing"),
        ({"verb": "hello", "rank": "0"}, "hello.rank: int was expected, not '0'"),
        ({"verb": "hello", "rank": True}, "hello.rank: int was expected, not True"),
        ({"verb": "hello", "rank": 0, "extra": 1}, "hello.extra: there is no such field"),
        ({"verb": "hello", "rank": 0, "wants_answer": 1}, "hello.wants_answer"),
        ({"verb": "steps", "rank": 0, "durations": [1, 2.5], "resident": 0}, "steps.durations: int was expected"),
        ({"verb": "steps", "rank": 0, "durations": 3, "resident": 0}, "steps.durations: a list was expected"),
        ({"verb": "run_started", "command": "", "groups": {"a": {"b": 1}}}, "run_started.groups.a.b: str was expected"),
        ({"verb": "end", "state": "asleep"}, "end.state: 'asleep' is not one of ok, failed"),
        ({"verb": "flight_record", "rank": 0, "calls": [{"group": "0"}]}, "flight_record.calls.ranks: the field is"),
    ],
)
def test_a_wrong_message_is_refused_by_the_name_of_its_field(data: dict[str, Any], named: str) -> None:
    with pytest.raises(MessageError) as error:
        decode(json.dumps(data).encode())
    assert named in str(error.value)


@given(st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    try:
        decode(data)
    except MessageError:
        pass


def test_answers_of_a_later_release_lose_what_this_one_does_not_know_also_inside() -> None:
    answer = agent_messages.SignalsAnswer(
        (agent_messages.SignalReading("power", "gpu0", 0.5, "power", Resource.COMPUTE, trouble=False),)
    )
    data = json.loads(encode(answer))
    data["readings"][0]["mood"] = data["mood"] = "later"
    assert decode_answer(json.dumps(data).encode(), agent_messages.SignalsAnswer) == answer
    with pytest.raises(MessageError, match="mood"):
        decode(json.dumps(data).encode())
