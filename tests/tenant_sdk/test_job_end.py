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
