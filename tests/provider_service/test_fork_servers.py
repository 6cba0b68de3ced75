"""What an agent answers to a cell that it cannot run."""

from __future__ import annotations

import asyncio
import errno
from typing import NoReturn

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, NotBuilt, read_answer
from pharoah_benchmarks.environments import BuildError
from pharoah_protocol.node_profile import NO_LIMITS
from pharoah_protocol.vocabulary import Outcome
from pharoah_provider.agent.child_processes import ChildDied
from pharoah_provider.agent.environment_children import NotStarted
from pharoah_provider.agent.fork_servers import cell_answer, fork_servers

CELL = Cell("c", "gpt", {"length": 8})


def answer_after(error: Exception) -> str:
    servers = fork_servers(NO_LIMITS)

    async def fails(*_: object) -> NoReturn:
        raise error

    servers.ask = fails  # type: ignore[method-assign]
    return asyncio.run(cell_answer(servers, CELL))


def test_a_cell_that_ends_its_fork_server_has_crashed() -> None:
    assert CellResult.from_json(answer_after(ChildDied("exit status -11"))).outcome is Outcome.CRASH
    assert CellResult.from_json(answer_after(TimeoutError())).outcome is Outcome.TIMEOUT


@pytest.mark.parametrize(
    "error",
    [NotStarted("exit status -9"), BuildError("pip: 503 Server Error", may_be_tried_again=True)],
)
def test_what_passes_says_nothing_about_the_cell(error: Exception) -> None:
    answer = read_answer(answer_after(error))
    assert isinstance(answer, NotBuilt) and answer.may_be_tried_again


def test_an_environment_that_cannot_be_built_is_not_tried_again() -> None:
    answer = read_answer(answer_after(BuildError("pip: No matching distribution found for peft==0")))
    assert isinstance(answer, NotBuilt) and not answer.may_be_tried_again


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EAGAIN, errno.ENOMEM])
def test_a_machine_that_cannot_start_a_process_says_nothing_about_the_cell(number: int) -> None:
    answer = read_answer(answer_after(OSError(number, "no process")))
    assert isinstance(answer, NotBuilt) and "no process could be started" in answer.not_built
