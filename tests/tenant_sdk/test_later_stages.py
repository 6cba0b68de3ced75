"""Which stages of a pipeline are dry-run, and whose cost the result has."""

from __future__ import annotations

from array import array

from pharoah._errors import UnknownReason
from pharoah.cost.step import Memory, StepCost
from pharoah.dryrun.later_stages import MAX_STAGES, with_later_stages
from pharoah.dryrun.result import DryRun, NextStage
from pharoah_archetypes import Fingerprint, parse


class Pipeline:
    """Stages with an archetype, a memory peak in bytes, and objects for the next stage each."""

    def __init__(self, *stages: tuple[str, int, str]) -> None:
        self.stages = stages
        self.ran: list[int] = []

    def attempt(self, stage: NextStage) -> DryRun:
        self.ran.append(stage.rank)
        return self.dry_run(stage.rank)

    def dry_run(self, rank: int) -> DryRun:
        grammar, size, mail = self.stages[rank]
        if not grammar:
            raise UnknownReason("the script failed")
        skeleton, last = parse(grammar), len(self.stages) - 1
        fingerprint = Fingerprint(skeleton.archetype, skeleton.compute, grammar, {}, {}, {})
        cost = StepCost((), (), Memory(array("q", [size]), "p"))
        following = NextStage(rank + 1, last, mail) if rank < last else None
        return DryRun(fingerprint, cost, {}, next_stage=following)

    def result(self) -> DryRun:
        return with_later_stages(self.dry_run(0), self.attempt)


FIRST, MIDDLE, LAST = "fwd: emb gemm P2P", "fwd: P2P gemm P2P", "fwd: P2P gemm nll"


def test_the_cost_is_that_of_the_stage_that_needs_the_most_memory() -> None:
    pipeline = Pipeline((FIRST, 5, ""), (MIDDLE, 9, ""), (LAST, 7, ""))
    result = pipeline.result()
    assert pipeline.ran == [1, 2]
    assert (result.fingerprint, result.cost) == (pipeline.dry_run(0).fingerprint, pipeline.dry_run(1).cost)
    assert result.assumptions == ("the cost is that of rank 1, the stage that needs the most memory",)
    assert result.next_stage is None


def test_a_first_stage_that_needs_the_most_memory_keeps_its_cost() -> None:
    result = Pipeline((FIRST, 9, ""), (LAST, 9, "")).result()
    assert (result.cost.memory.events[0], result.assumptions) == (9, ())


def test_after_two_equal_stages_in_a_row_the_last_one_is_next() -> None:
    pipeline = Pipeline((FIRST, 1, ""), *[(MIDDLE, 1, "shape")] * 9, (LAST, 2, ""))
    result = pipeline.result()
    assert pipeline.ran == [1, 2, 10]
    assert result.assumptions == ("the cost is that of rank 10, the stage that needs the most memory",)


def test_stages_that_send_other_objects_are_not_equal() -> None:
    pipeline = Pipeline((FIRST, 1, ""), *[(MIDDLE, 1, str(number)) for number in range(9)], (LAST, 2, ""))
    pipeline.result()
    assert pipeline.ran == list(range(1, MAX_STAGES + 1))


def test_a_stage_that_cannot_be_dry_run_is_named() -> None:
    pipeline = Pipeline((FIRST, 1, ""), (MIDDLE, 2, ""), ("", 0, ""), (LAST, 9, ""))
    result = pipeline.result()
    assert pipeline.ran == [1, 2]
    assert result.cost.memory.events[0] == 2
    assert result.assumptions[0] == "the stage of rank 2 is not known: the script failed"


def test_a_job_without_stages_is_left_as_it_is() -> None:
    alone = Pipeline(("fwd: gemm", 1, ""))
    assert alone.result() == alone.dry_run(0) and not alone.ran
