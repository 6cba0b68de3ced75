"""The controls of trials: an index finds the same ones as a comparison of every trial with every other one."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.evidence import Trial
from pharoah_learning.known_trials import Controls, KnownTrial
from pharoah_protocol.vocabulary import Outcome, Scope
from tests.harness.exchange import KNOWN

TEXT = KNOWN.to_json()


def known(workload: str, settings: dict[str, object], context: str, device: str) -> KnownTrial:
    trial = Trial(
        workload=workload,
        settings=settings,
        context_id=context,
        device_id=device,
        outcome=Outcome.OK,
        step_seconds=(),
        fingerprint=TEXT,
    )
    return KnownTrial.from_trial(trial)


def compared_with_each(scope: Scope, treated: Sequence[KnownTrial], trials: Sequence[KnownTrial]) -> list[KnownTrial]:
    """The definition: the same workload, and one setting or the group alone is another one."""

    def differs_in_one_thing(one: KnownTrial, other: KnownTrial) -> bool:
        if one.row.workload != other.row.workload:
            return False
        names = one.row.settings.keys() | other.row.settings.keys()
        changed = sum(one.row.settings.get(name) != other.row.settings.get(name) for name in names)
        return changed == 1 or (not changed and one.group(scope) not in groups)

    groups = {trial.group(scope) for trial in treated}
    own = {id(trial) for trial in treated}
    return [one for one in trials if id(one) not in own and any(differs_in_one_thing(one, other) for other in treated)]


settings = st.dictionaries(st.sampled_from("xyz"), st.sampled_from([1, 2, 1.0, "1", "a"]))
trials = st.builds(known, st.sampled_from("vw"), settings, st.sampled_from("cd"), st.sampled_from("ef"))


@given(st.lists(trials, max_size=24), st.sampled_from(Scope), st.data())
def test_an_index_finds_the_controls_that_a_comparison_with_each_trial_finds(
    seen: list[KnownTrial], scope: Scope, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.integers(0, max(0, len(seen) - 1)))) if seen else set()
    treated = [seen[place] for place in sorted(chosen)]
    found = Controls(seen).find_controls(scope, treated)
    assert list(map(id, found)) == list(map(id, compared_with_each(scope, treated, seen)))


def test_a_trial_that_lacks_the_setting_is_a_control_and_one_with_two_others_is_none() -> None:
    treated = known("w", {"x": 1}, "c", "e")
    lacking, two_others, elsewhere, same = (
        known("w", {}, "c", "e"),
        known("w", {"x": 2, "y": 1}, "c", "e"),
        known("w", {"x": 1}, "d", "e"),
        known("w", {"x": 1}, "c", "e"),
    )
    found = Controls([treated, lacking, two_others, elsewhere, same]).find_controls(Scope.SERVER, [treated])
    assert found == [lacking, elsewhere]
