from __future__ import annotations

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun.command_line import launch_of


@pytest.mark.parametrize(
    ("command", "program", "nodes", "processes"),
    [
        ("torchrun train.py", "train.py", 1, 1),
        ("torchrun --nproc-per-node 8 --nnodes 16 train.py --lr 1", "train.py --lr 1", 16, 8),
        ("torchrun --nproc_per_node=4 --standalone train.py", "train.py", 1, 4),
        ("torchrun --nnodes=1:4 --rdzv-backend c10d --rdzv-endpoint h:1 -m pkg.train -x", "-m pkg.train -x", 4, 1),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train.py", 1, 2),
        ("python3 -u -m torch.distributed.launch --use-env --nproc_per_node 2 train.py", "train.py", 1, 2),
    ],
)
def test_launchers_are_read(command: str, program: str, nodes: int, processes: int) -> None:
    launch = launch_of(command.split())
    assert (" ".join(launch.program), launch.nodes, launch.processes) == (program, nodes, processes)
    world = launch.environment()
    assert (world["RANK"], world["WORLD_SIZE"], world["LOCAL_WORLD_SIZE"]) == (
        "0",
        str(nodes * processes),
        str(processes),
    )


def test_a_plain_program_has_no_world_unless_it_is_given_one() -> None:
    launch = launch_of(["python", "-u", "train.py", "--nnodes", "3"])
    assert launch.program == ("train.py", "--nnodes", "3")
    assert launch.environment() == {}
    assert launch.on(None, None) is launch
    assert launch.on(128, 8).environment()["WORLD_SIZE"] == "1024"


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("bash train.sh", "neither `python script.py ...` nor `torchrun"),
        ("python", "no script or module"),
        ("python -c print(1)", "no script or module"),
        ("torchrun --nproc-per-node 8", "no script or module"),
        ("torchrun --nproc-per-node many train.py", "--nproc-per-node=many: not a number of processes"),
        ("torchrun --nnodes 0 train.py", "--nnodes=0: not a number of nodes"),
        ("", "neither"),
    ],
)
def test_what_cannot_be_read_is_said(command: str, says: str) -> None:
    with pytest.raises(UnknownReason, match=says):
        launch_of(command.split())
