"""What stands of the ends that ranks and launchers report."""

from __future__ import annotations

import asyncio

import pytest

from pharoah.sidecar.job_end import JobEnd
from pharoah_protocol.rank_messages import End
from pharoah_protocol.vocabulary import EndState

STATED = End(EndState.PREEMPTED, stated=True)


@pytest.mark.parametrize(
    ("reported", "expected"),
    [
        ([End(EndState.OK)], EndState.OK),
        ([STATED, End(EndState.OK)], EndState.PREEMPTED),
        ([STATED, End(EndState.FAILED, status=143)], EndState.PREEMPTED),
        ([End(EndState.OK), STATED], EndState.PREEMPTED),
        ([STATED, End(EndState.CANCELLED, stated=True)], EndState.CANCELLED),
    ],
)
def test_what_a_script_states_stands_over_how_its_processes_end(reported: list[End], expected: EndState) -> None:
    end = JobEnd({})
    for message in reported:
        end.reported(message)
    assert asyncio.run(end.judged()).state is expected


def test_a_launcher_that_was_asked_to_end_was_cancelled_though_it_leaves_with_1() -> None:
    for asked_at, state in ((1_700_000_000.0, EndState.CANCELLED), (None, EndState.FAILED)):
        end = JobEnd({})
        end.reported(End(EndState.FAILED, error="KeyboardInterrupt: "))
        end.reported(End(EndState.FAILED, last=True, status=1, asked_at=asked_at))
        assert asyncio.run(end.judged()).state is state


def test_the_first_time_at_which_a_job_is_asked_to_end_counts() -> None:
    """It decides whether the job had reached the end of its time. The sidecar, which is asked later, is asked now."""
    limit = {"SLURM_JOB_ID": "4711", "SLURM_JOB_END_TIME": "1700000000"}
    end = JobEnd(limit)
    end.terminated()
    end.reported(End(EndState.FAILED, last=True, status=1, asked_at=1_700_000_001.0))
    end.terminated()
    assert asyncio.run(end.judged()).state is EndState.TIME_LIMIT
