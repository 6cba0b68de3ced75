"""Epochs: a sealed row opens with the right input, and the same inputs give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_archetypes import canonical_input
from pharoah_learning.release import LearnedRow, Release, SealInputs
from pharoah_learning.sealing import Epoch, seal
from pharoah_protocol.log.merkle import root
from pharoah_protocol.tables.epoch_head import verify_head
from pharoah_protocol.tables.rows import open_row, split
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity
from pharoah_protocol.voprf import protocol

ROW = LearnedRow(
    scope=Scope.SERVER,
    group_id="ctx",
    rung=Rung.EXACT,
    tokens=("a=1", "b=2"),
    severity=Severity.BLOCK,
    outcome=Outcome.MEMORY,
    failures=5,
    runs=5,
    base_failures=0,
    base_runs=25,
    remedy=1,
)
RECIPE = SealInputs(9, Release(3, (ROW,)), (("device", "cpu"), ("server", "ctx")), 1000)
KEY, SEED = Ed25519PrivateKey.from_private_bytes(bytes(32)), b"s" * 32


def sealed(**changes: object) -> Epoch:
    return seal(replace(RECIPE, **changes), SEED, KEY)  # type: ignore[arg-type]


def test_an_epoch_opens_with_the_right_input_and_its_own_key() -> None:
    epoch = sealed()
    head = verify_head(epoch.body, epoch.signature, KEY.public_key(), 1000.0)
    assert (head.epoch, head.release) == (9, 3)
    one = epoch.classes[epoch.ids["server", "ctx"]]
    rows = split(one.content)
    assert root(rows) == head.table(one.class_id).root
    scalar, blinded = protocol.blind(value := canonical_input("arch", "exact", ROW.tokens))
    (evaluated,), proof = protocol.evaluate(one.secret, one.public, [blinded])
    protocol.verify(head.table(one.class_id).public_key, [blinded], [evaluated], proof)
    opened = open_row(rows, protocol.finalize(value, scalar, evaluated), 9, one.class_id)
    assert opened is not None and (opened.severity, opened.failures, opened.base_runs) == ("block", 5, 25)


def test_the_same_ingredients_make_the_same_epoch_and_others_another() -> None:
    first = sealed()
    assert sealed().body == first.body
    assert {one.content for one in sealed().classes.values()} == {one.content for one in first.classes.values()}
    others = [sealed(epoch=10), sealed(release=Release(3)), seal(RECIPE, b"t" * 32, KEY)]
    rows = [{row for one in epoch.classes.values() for row in split(one.content)} for epoch in (first, *others)]
    assert not rows[0] & rows[1] and not rows[0] & rows[3]
    assert len({epoch.body for epoch in (first, *others)}) == 4
    assert not first.classes.keys() & others[2].classes.keys(), "handles do not link epochs"


def test_a_class_nothing_is_known_of_looks_like_any_other() -> None:
    epoch = sealed(groups=(("server", "ctx"), ("server", "new")))
    assert len({len(one.content) for one in epoch.classes.values()}) == 1


class CountedRows(tuple[LearnedRow, ...]):
    """Rows that count how often all of them are gone through."""

    passes = 0

    def __iter__(self) -> Iterator[LearnedRow]:
        CountedRows.passes += 1
        return super().__iter__()


def test_the_rows_of_a_release_are_gone_through_once_however_many_classes_there_are() -> None:
    rows = CountedRows(replace(ROW, group_id=f"ctx{number}") for number in range(20))
    groups = tuple(("server", f"ctx{number}") for number in range(-5, 20))
    epoch = sealed(release=Release(3, rows), groups=groups)
    assert CountedRows.passes == 1
    for number in range(-5, 20):
        own = epoch.classes[epoch.ids["server", f"ctx{number}"]].rows
        assert [row.group_id for row in own] == [f"ctx{number}"] * (number >= 0)


def test_two_rows_for_one_input_are_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        sealed(release=Release(3, (ROW, replace(ROW, severity=Severity.OK))))
