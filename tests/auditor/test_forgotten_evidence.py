"""The replay of an epoch after evidence was forgotten: what is required of the provider, and what is its word only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pharoah_auditor.replay import AuditFinding, replay
from pharoah_protocol.log.forgotten import ForgetChange, ForgetKind, entry_of
from pharoah_provider.audit_bundle import audit_bundle as exported
from tests.auditor.test_auditor import PUBLIC, ROWS, TRIALS, audit_bundle
from tests.harness.clock import SimulatedClock
from tests.harness.publisher import publisher_site

LEARNED_AT = 1000.0
"""When the release of the bundles was learned. Its trials ran at 0."""
NODE = TRIALS[0].node
OF_NODE = sum(trial.node == NODE for trial in TRIALS)
OTHER = ForgetChange(ForgetKind.NODE, "a node without trials", 5.0)
EARLIER, LATER = (ForgetChange(ForgetKind.NODE, NODE, at) for at in (LEARNED_AT - 1, LEARNED_AT + 1))


def findings(
    folder: Path, logged: Sequence[ForgetChange], shown: Sequence[ForgetChange], **changes: object
) -> dict[str, bool | None]:
    """What the replay says about forgotten evidence, when these changes were logged before the head, and those are in
    the bundle."""
    file = audit_bundle(folder, tuple(ROWS), forgotten=[asdict(change) for change in shown], **changes)
    content = json.loads(file.read_text())
    entries = [entry_of(logged[: at + 1]).encode().hex() for at in range(len(logged))]
    file.write_text(json.dumps({**content, "log": [*entries, *content["log"]]}))
    return about_forgotten(replay(file, PUBLIC))


def about_forgotten(found: list[AuditFinding]) -> dict[str, bool | None]:
    words = ("forgotten", "is said to be learned")
    return {finding.what: finding.holds for finding in found if any(word in finding.what for word in words)}


def test_evidence_that_was_forgotten_and_not_learned_from(tmp_path: Path) -> None:
    undone = replace(EARLIER, undone=True)
    for changes in ([OTHER], [OTHER, EARLIER, undone]):
        assert set(findings(tmp_path, changes, changes).values()) == {True}
    assert findings(tmp_path, [], []) == {}


@pytest.mark.parametrize("shown", [[], [OTHER], [OTHER, replace(EARLIER, at=LATER.at)], [OTHER, EARLIER, OTHER]])
def test_changes_other_than_the_logged_ones_never_hold(tmp_path: Path, shown: list[ForgetChange]) -> None:
    """A provider that leaves out what it did not follow, or dates it later."""
    found = findings(tmp_path, [OTHER, EARLIER], shown)
    assert list(found.values()) == [False], "and nothing else is said to hold"
    assert f"{len(shown)} changes of forgotten evidence are NOT the 2 of the log" in found


def test_trials_that_were_learned_from_although_they_are_forgotten(tmp_path: Path) -> None:
    found = findings(tmp_path, [OTHER, EARLIER], [OTHER, EARLIER])
    assert found[f"{OF_NODE} trials were learned from although they are forgotten"] is False


def test_that_a_change_is_younger_than_the_release_is_the_word_of_the_provider(tmp_path: Path) -> None:
    found = findings(tmp_path, [OTHER, LATER], [OTHER, LATER])
    (word,) = [what for what, holds in found.items() if holds is None]
    assert "1 changes are dated later than the release" in word and f"{OF_NODE} of its trials" in word
    assert False not in found.values()


def test_a_trial_that_ran_later_refutes_the_time_of_the_release(tmp_path: Path) -> None:
    """What remains to a provider that dates its release before the change that it did not follow."""
    late = [asdict(replace(trial, ran_at=LATER.at + 1)) for trial in TRIALS[:1]]
    trials = [*late, *(asdict(trial) for trial in TRIALS[1:])]
    found = findings(tmp_path, [LATER], [LATER], trials=trials)
    assert found["1 trials ran after the time at which the release is said to be learned"] is False


def test_a_bundle_has_all_changes_that_were_logged_before_its_head(tmp_path: Path) -> None:
    """From a real publisher: also changes after the release was learned, and none after the head."""
    clock = SimulatedClock()

    async def work() -> None:
        async with publisher_site(tmp_path, clock) as site:
            await site.publisher.open()
            clock.forward(25 * 3600.0)
            await site.publisher.forget(ForgetKind.NODE, "n1")
            await site.publisher.rotate()
            await site.publisher.forget(ForgetKind.NODE, "n2")
            for epoch, names in ((1, []), (2, ["n1"])):
                bundle = tmp_path / f"{epoch}.json"
                bundle.write_text(await exported(site.store, site.keys, epoch))
                assert [change["name"] for change in json.loads(bundle.read_text())["forgotten"]] == names
                found = about_forgotten(replay(bundle, site.keys.public))
                assert False not in found.values() and (None in found.values()) == bool(names)

    asyncio.run(work())
