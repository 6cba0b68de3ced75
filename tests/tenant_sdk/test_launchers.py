"""Launchers do not read the options of the script as their own, and the ranks are those that they start."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from pharoah._errors import UnknownReason
from pharoah.capture import hardware
from pharoah.capture.hardware import gpu_names, is_part_of_a_gpu
from pharoah.dryrun import dry_run
from pharoah.dryrun.environment import child_environment
from pharoah.dryrun.parent import ChildProcess
from pharoah.launchers import Launch, Program, launch_of, launchers

GPU = "NVIDIA H100 80GB HBM3"
GPUS = 8


def first_rank(command: str) -> Program:
    program = launch_of(command.split()).program
    return launchers()[program.launcher].first_process(program) if program.launcher else program


@pytest.fixture(autouse=True)
def _eight_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine has 8 GPUs, and dry runs simulate as many."""
    for number in range(GPUS):
        card = tmp_path / f"nvidia/gpus/0000:0{number}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(f"Model: \t\t {GPU}\nGPU UUID: \t GPU-{number}\n")
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path / "nvidia")
    monkeypatch.setenv("PHAROAH_DRY_RUN_GPUS", ",".join([GPU] * GPUS))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def _deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher of DeepSpeed as far as a dry run calls it; DeepSpeed itself is not installed here."""
    runner = ModuleType("deepspeed.launcher.runner")
    runner.parse_args = _deepspeed_arguments  # type: ignore[attr-defined]
    runner.fetch_hostfile = _deepspeed_hosts  # type: ignore[attr-defined]
    package = ModuleType("deepspeed.launcher")
    package.runner = runner  # type: ignore[attr-defined]
    for name, module in (
        ("deepspeed", ModuleType("deepspeed")),
        (package.__name__, package),
        (runner.__name__, runner),
    ):
        monkeypatch.setitem(sys.modules, name, module)


def _deepspeed_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("-H", "--hostfile", default="/job/hostfile")
    parser.add_argument("-i", "--include", default="")
    parser.add_argument("-e", "--exclude", default="")
    parser.add_argument("--num_nodes", type=int, default=-1)
    parser.add_argument("--num_gpus", "--num_accelerators", type=int, default=-1)
    for flag in ("--module", "--no_python", "--no_local_rank"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def _deepspeed_hosts(path: str) -> dict[str, int] | None:
    if not Path(path).is_file():
        return None
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    return {name: int(slots.removeprefix("slots=")) for name, slots in lines}


# ---- options of the script ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("torchrun --nproc-per-node 2 train.py --nproc-per-node x", 2),
        ("torchrun --nproc-per-node 2 train.py --nproc-per-node 16", 2),
        ("torchrun --nproc-per-node=2 -m pkg.train --nproc-per-node 16", 2),
        ("torchrun -m --nproc-per-node 2 pkg.train --nproc-per-node 16", 2),
        ("torchrun --standalone --nproc-per-node 2 train --nproc-per-node 16", 2),
        ("torchrun train.py --nproc-per-node gpu", 1),
        ("torchrun --nproc-per-node many train.py", 1),  # torchrun itself refuses it
        ("accelerate launch --num_processes 2 train.py --num_processes 16", 2),
        ("accelerate launch --multi_gpu --num_processes 2 --module pkg.train --num_processes 16", 2),
        ("accelerate launch train.py --config_file llama7b", 1),
        ("accelerate launch --config_file /no/such.yaml train.py", 1),
        ("accelerate launch --num_processes many train.py", 1),
        ("deepspeed --num_gpus 2 train.py --num_gpus 16", 2),
        ("deepspeed --num_accelerators 2 train.py", 2),
        ("deepspeed train.py -H 12", 8),
        ("deepspeed train.py --num_gpus many", 8),
        ("fabric run --devices 2 train.py -- --devices 16", 2),
        ("fabric run train.py --devices 4", 4),  # Fabric reads its options also behind the script
    ],
)
def test_options_of_the_script_are_not_those_of_the_launcher(command: str, processes: int) -> None:
    assert launch_of(command.split()).processes == processes


@pytest.mark.usefixtures("_deepspeed")
def test_a_script_of_deepspeed_may_have_an_option_named_as_the_hostfile() -> None:
    assert first_rank("deepspeed train.py -H 12").arguments == ("train.py", "--local_rank=0", "-H", "12")


def test_a_hostfile_is_looked_for_where_deepspeed_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The dry run changes to the folder of `env --chdir` before it parses what the launcher is given."""
    launch = launch_of(["env", f"--chdir={tmp_path}", "deepspeed", "--hostfile", "hosts", "train.py"])
    assert launch.folder == str(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownReason, match="there is no file hosts"):
        first_rank("deepspeed --hostfile hosts train.py")


# ---- DeepSpeed ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_deepspeed")
@pytest.mark.parametrize(
    ("options", "nodes", "processes"),
    [
        ("", 1, 8),
        ("--num_gpus 2", 1, 2),
        ("--include localhost:0,1", 1, 2),
        ("--include localhost:0@localhost:1,1", 1, 2),
        ("-i localhost", 1, 8),
        ("--exclude localhost:0", 1, 7),
        ("--num_nodes 2", 2, 8),
        ("-H hosts", 4, 4),
        ("-H hosts --num_nodes 2", 2, 4),
        ("-H hosts --num_nodes 2 --num_gpus 3", 2, 3),
        ("-H hosts --include worker-1", 1, 4),
        ("-H hosts --include worker-0@worker-1:0,2", 2, 4),
        ("-H hosts --include worker-2:1@worker-1:0", 2, 1),
        ("-H hosts --exclude worker-0@worker-3", 2, 4),
        ("-H hosts -e worker-0:0,1,2,3", 3, 4),
    ],
)
def test_resources_of_deepspeed_are_filtered(
    options: str, nodes: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("".join(f"worker-{number} slots=4\n" for number in range(4)))
    monkeypatch.chdir(tmp_path)
    direct = first_rank(f"deepspeed {options} train.py")
    assert (direct.nodes, direct.processes) == (nodes, processes)


@pytest.mark.usefixtures("_deepspeed")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--include localhost:0 --exclude localhost:1", "either --include or --exclude, not both"),
        ("--include localhost:0 --num_gpus 2", "or --num_nodes and --num_gpus, not both"),
        ("--include worker-9", "--include names worker-9, .* give --hostfile a file with it"),
        ("--exclude localhost", "--exclude leaves no slot"),
        ("--include localhost:first", "localhost:first: write NODE, or NODE:SLOT,SLOT with numbers"),
    ],
)
def test_a_filter_that_deepspeed_refuses_is_the_reason(options: str, message: str) -> None:
    with pytest.raises(UnknownReason, match=message):
        first_rank(f"deepspeed {options} train.py")


# ---- Accelerate ---------------------------------------------------------------------------------------------------


def test_accelerate_counts_processes_over_all_machines() -> None:
    assert (
        launch_of(["accelerate", "launch", "--num_machines", "2", "--num_processes", "16", "train.py"]).processes == 8
    )
    assert launch_of(["accelerate", "launch", "--num-machines=4", "--num-processes=2", "train.py"]).processes == 1


@pytest.mark.parametrize(
    ("command", "launcher", "processes"),
    [
        ("python -m accelerate.commands.launch --num_processes 8 train.py", "accelerate", 8),
        ("python -m deepspeed.launcher.runner --num_gpus 8 train.py", "deepspeed", 8),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "torchrun", 8),
        ("python -m torch.distributed.launch --nproc-per-node 8 train.py", "torch.distributed.launch", 8),
        ("python -m lightning.fabric.cli run --devices 8 train.py", "fabric", 8),
    ],
)
def test_a_module_is_the_launcher_that_its_program_is(command: str, launcher: str, processes: int) -> None:
    launch = launch_of(command.split())
    assert (launch.program.launcher, launch.processes, launch.python) == (launcher, processes, "python")
    assert launch.program.arguments[-1] == "train.py" and "launch" not in launch.program.arguments


# ---- MPI ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "nodes", "processes"),
    [
        ("-N 8 -H a,b", 2, 8),
        ("-N 8", 1, 8),
        ("-np 16 -N 8", 2, 8),
        ("-np 16 -N 8 -H a,b,c,d", 2, 8),
        ("-np 4 -N 8 -H a,b", 1, 4),
        ("-np 16 -npernode 8", 2, 8),
        ("-n 16 -ppn 4 -hosts a,b,c,d", 4, 4),
        ("-n 16 -ppn 4 -hosts a,b", 2, 8),
        ("-n 16 -perhost 8", 2, 8),
        ("-np 4 -pernode", 4, 1),
        ("-np 16 --map-by ppr:8:node", 2, 8),
        ("-np 16 --map-by ppr:8:node:PE=4 --bind-to core", 2, 8),
        ("-np 16 --map-by slot -H a:8,b:8", 2, 8),
        ("-H a,a,b,b", 2, 2),
        ("-H a,a -H b,b", 2, 2),
        ("-H a:4,b:4", 2, 4),
        ("-np 2 -H a,a", 1, 2),
        ("--hostfile hosts", 2, 4),
        ("", 1, 1),
    ],
)
def test_ranks_of_mpi_are_counted_by_node(
    options: str, nodes: int, processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("a slots=2  # one half\nb:4\n\na slots=2\n")
    monkeypatch.chdir(tmp_path)
    program = launch_of(f"mpirun {options} python train.py".split()).program
    assert (program.nodes, program.processes) == (nodes, processes)


def test_a_wrong_number_of_processes_on_each_node_is_named() -> None:
    with pytest.raises(UnknownReason, match="-ppn=many: not a number of processes"):
        launch_of(["mpirun", "-ppn", "many", "python", "train.py"])


# ---- uv -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "launcher", "processes"),
    [
        ("torch.distributed.run --nproc-per-node 8", "torchrun", 8),
        ("accelerate.commands.launch --num_processes 8", "accelerate", 8),
        ("deepspeed.launcher.runner --num_gpus 8", "deepspeed", 8),
    ],
)
def test_uv_runs_modules_that_are_launchers(module: str, launcher: str, processes: int, tmp_path: Path) -> None:
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.touch()
    launch = launch_of(["uv", "run", "--directory", str(tmp_path), "-m", *module.split(), "train.py"])
    assert (launch.python, launch.folder) == (str(python), str(tmp_path))
    assert (launch.program.launcher, launch.processes) == (launcher, processes)
    plain = launch_of(["uv", "run", "--project", str(tmp_path), "-m", "pkg.train", "--lr", "1"])
    assert plain.program.arguments == ("-m", "pkg.train", "--lr", "1") and not plain.program.launcher


# ---- GPUs that the command hides ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("torchrun --nproc-per-node gpu train.py", 8),
        ("env CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node gpu train.py", 2),
        ("env CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node auto train.py", 2),
        ("env CUDA_VISIBLE_DEVICES=GPU-7 torchrun --nproc-per-node gpu train.py", 1),
        ("mpirun -np 2 -x CUDA_VISIBLE_DEVICES=0,1,2 torchrun --nproc-per-node gpu train.py", 3),
    ],
)
def test_the_gpus_are_those_that_the_command_leaves_visible(
    command: str, gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = launch_of(command.split())
    assert launch.processes == gpus
    assert launch.on(None, 5).processes == 5
    names = _child_gpus(launch.environment())
    assert names == [GPU] * gpus
    monkeypatch.setenv("PHAROAH_DRY_RUN_GPUS", ",".join(names))
    assert first_rank(command).processes == gpus


def test_what_hides_gpus_from_pharoah_may_be_removed_by_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert len(gpu_names()) == 1 and len(gpu_names({})) == GPUS
    launch = launch_of(["env", "-u", "CUDA_VISIBLE_DEVICES", "torchrun", "--nproc-per-node", "gpu", "train.py"])
    assert launch.processes == GPUS and len(_child_gpus(launch.environment())) == GPUS


def _child_gpus(variables: dict[str, str]) -> list[str]:
    return child_environment(variables, {}, record_code=False, mitigation=None)["PHAROAH_DRY_RUN_GPUS"].split(",")


MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"


@pytest.mark.parametrize(
    ("visible", "part"),
    [
        (MIG, True),
        (f" {MIG},{MIG}", True),
        ("MIG-GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77/1/0", True),
        (f"0,{MIG}", False),
        ("GPU-3", False),
        ("0", False),
        ("", False),
    ],
)
def test_a_part_of_a_gpu_is_known_by_its_name(visible: str, part: bool) -> None:
    assert is_part_of_a_gpu({"CUDA_VISIBLE_DEVICES": visible}) is part
    assert not part or gpu_names({"CUDA_VISIBLE_DEVICES": visible}) == []
    assert not is_part_of_a_gpu({})


def test_without_a_gpu_there_is_no_part_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_NVIDIA", tmp_path / "none")
    assert not is_part_of_a_gpu({"CUDA_VISIBLE_DEVICES": MIG})


def test_a_job_on_a_part_of_a_gpu_is_dry_run_for_a_gpu_that_is_named_only(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[str] = []

    def start(_: Launch, environment: Mapping[str, str], *__: object) -> ChildProcess:
        simulated.append(environment["PHAROAH_DRY_RUN_GPUS"])
        raise OSError("nothing is started here")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", MIG)
    with pytest.raises(UnknownReason, match=r"names a part of a GPU \(MIG\).*--gpus"):
        dry_run(["python", "train.py"], 60.0, start=start)
    for gpus in ("L4", ""):
        monkeypatch.setenv("PHAROAH_GPUS", "" if gpus else "T4")
        with pytest.raises(UnknownReason, match="could not start: nothing is started here"):
            dry_run(["python", "train.py"], 60.0, gpus=gpus, start=start)
    with pytest.raises(UnknownReason, match="nothing is started here"):
        dry_run(["env", "CUDA_VISIBLE_DEVICES=7", "python", "train.py"], 60.0, start=start)
    assert simulated[:2] == ["L4", "T4"]
