"""A dry run follows the Python programs that a shell starts, in the shell's own order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run
from pharoah.dryrun.sandbox_mode import SANDBOX_MODE, SandboxMode
from pharoah.dryrun.shell_commands import InsideShell

PREPARE = "open('data.txt', 'w').write('8')"
TRAIN = """
import os, sys, torch
model = torch.nn.Linear(int(open("data.txt").read()), int(os.environ.get("WORLD_SIZE", 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
for _ in range(3):
    model(torch.randn(2, 8)).mean().backward()
    optimizer.step()
"""
SCRIPT = """#!/bin/sh
set -eu
cd "$(dirname "$0")"
echo "on $(python -c 'print(1 + 1)') cores" > log.txt
python prepare.py
torchrun --nproc-per-node 4 train.py "$@"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in (("prepare.py", PREPARE), ("train.py", TRAIN), ("train.sh", SCRIPT)):
        (tmp_path / name).write_text(content)
    (tmp_path / "train.sh").chmod(0o755)
    (tmp_path / "Makefile").write_text("train:\n\tpython prepare.py && python train.py 0.1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    return tmp_path


def test_a_shell_script_is_followed_to_its_training_step(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    for command in (["sh", "train.sh", "0.1"], ["./train.sh", "0.1"], ["env", "A=1", "bash", "train.sh", "0.1"]):
        dry = dry_run(command, 60.0)
        assert dry.fingerprint.sizes["parameters"] == 4 * (8 * 4 + 4)  # four ranks, by the number of processes
        assert dry.processes == 4
    assert sorted(path.name for path in folder.iterdir()) == before  # what the script writes stays in the sandbox


def test_a_program_that_srun_has_started_beside_others_is_one_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them may be `pharoah run`, with a sidecar of its own."""
    for name, value in {"SLURM_STEP_ID": "0", "SLURM_STEP_TASKS_PER_NODE": "4", "SLURM_STEP_NUM_TASKS": "4"}.items():
        monkeypatch.setenv(name, value)
    (folder / "data.txt").write_text("8")
    assert dry_run([sys.executable, "train.py", "0.1"], 60.0).processes == 1


def test_a_makefile_and_a_line_of_commands_are_followed(folder: Path) -> None:
    for command in (["make", "train"], ["sh", "-c", "python prepare.py && python train.py 0.1"]):
        assert dry_run(command, 60.0).fingerprint.sizes["parameters"] == 4 * 9


ACTIVATE = """
deactivate () { unset -f deactivate; }
VIRTUAL_ENV="$PWD/own"
export VIRTUAL_ENV
PATH="$VIRTUAL_ENV/bin:$PATH"
export PATH
hash -r 2> /dev/null
"""
"""What `activate` of the module venv does."""


def test_an_interpreter_that_is_named_with_its_folder_is_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So is a launcher that is named with its folder, and a wrapper script changes nothing. On the search path there is
    another interpreter, which has no packages."""
    bare = folder / "bare"
    bare.mkdir()
    (bare / "python").symlink_to("/bin/false")
    monkeypatch.setenv("PATH", f"{bare}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    (folder / "data.txt").write_text("8")
    (folder / "train.py").write_text(f"import os\nassert os.environ['PYTHONPATH'] == {str(folder / 'lib')!r}\n{TRAIN}")
    for line in ('exec "$0" train.py 0.1', '"$0" -c "print(1)" && "$0" train.py 0.1', 'nice "$0" train.py 0.1'):
        assert dry_run(["sh", "-c", line, sys.executable], 60.0).fingerprint.sizes["parameters"] == 4 * 9
    torchrun = folder / "torchrun"
    torchrun.write_text(f"#!{sys.executable}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    dry = dry_run(["sh", "-c", '"$0" --nproc-per-node 4 train.py 0.1', str(torchrun)], 60.0)
    assert dry.processes == 4


def test_an_interpreter_without_torch_runs_what_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no package of ours either. Its own `sitecustomize` runs as well."""
    (folder / "lib").mkdir()
    (folder / "lib/sitecustomize.py").write_text("import builtins\nbuiltins.width = '8'\n")
    (folder / "prepare.py").write_text("import sys\nopen('data.txt', 'w').write(width)\nsys.exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    other = f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if sys.base_prefix == sys.prefix:
        pytest.skip("torch is installed in the interpreter that the environment is made from")
    line = '"$0" prepare.py; test $? = 3 && python train.py 0.1'
    assert dry_run(["sh", "-c", line, other], 60.0).fingerprint.sizes["parameters"] == 4 * 9


def test_what_installed_programs_and_scripts_print_is_there_for_the_shell(folder: Path) -> None:
    """The first is no Python script of the job, so it runs as without us."""
    (folder / "prepare.py").write_text(f"{PREPARE}\nprint('made')\n")
    tool = Path(sys.executable).parent / "pytest"
    line = f"{tool} --version > tool.txt 2>&1; python prepare.py > made.txt"
    line += " && grep -q pytest tool.txt && grep -q made made.txt && python train.py 0.1"
    assert dry_run(["bash", "-c", line], 60.0).fingerprint.sizes["parameters"] == 4 * 9


@pytest.mark.parametrize("given", ["$PWD/lib:$PYTHONPATH", "$PYTHONPATH:$PWD/lib"])
def test_a_script_may_add_to_an_empty_python_path(folder: Path, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (folder / "data.txt").write_text("8")
    wanted = given.replace("$PWD", str(folder)).replace("$PYTHONPATH", "")
    (folder / "train.py").write_text(f"import os\nassert os.environ['PYTHONPATH'] == {wanted!r}\n{TRAIN}")
    line = f'export PYTHONPATH="{given}"; python train.py 0.1'
    assert dry_run(["bash", "-c", line], 60.0).fingerprint.sizes["parameters"] == 4 * 9


def test_a_program_that_prepares_something_and_exits_gives_no_reason(folder: Path) -> None:
    (folder / "prepare.py").write_text(f"{PREPARE}\nraise SystemExit(0)\n")
    with pytest.raises(UnknownReason, match=r"No such file or directory: .*missing\.py"):
        dry_run(["sh", "-c", "python prepare.py && python missing.py"], 60.0)


def test_a_script_that_activates_its_environment_is_followed_into_it(folder: Path) -> None:
    """The programs of the environment come first on the search path, before those of the dry run."""
    own = folder / "own/bin"
    own.mkdir(parents=True)
    (own / "activate").write_text(ACTIVATE)
    (own / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (own / "torchrun").write_text(f"#!{own}/python\nfrom torch.distributed.run import main\nmain()\n")
    for program in (own / "python", own / "torchrun"):
        program.chmod(0o755)
    (folder / "data.txt").write_text("8")
    (folder / "train.py").write_text(f"import os\nassert os.environ['VIRTUAL_ENV']\n{TRAIN}")
    dry = dry_run(["bash", "-c", "source own/bin/activate && python train.py 0.1"], 60.0)
    assert dry.fingerprint.sizes["parameters"] == 4 * 9
    for shell, line in (
        ("sh", ". own/bin/activate && python train.py 0.1"),
        ("bash", "source own/bin/activate && exec python train.py 0.1"),
        ("bash", "source own/bin/activate && env A=1 python train.py 0.1"),
    ):
        assert dry_run([shell, "-c", line], 60.0).fingerprint.sizes["parameters"] == 4 * 9
    dry = dry_run(["bash", "-c", "source own/bin/activate && torchrun --nproc-per-node 4 train.py 0.1"], 60.0)
    assert dry.processes == 4


def test_a_program_that_the_job_starts_is_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the search path nor a function of bash leads to the programs of the dry run any more."""
    real, ours, inside = tmp_path / "real", tmp_path / "ours", InsideShell(3, 0.0, "", str(tmp_path / "ours"))
    for folder in (real, ours):
        folder.mkdir()
        (folder / "one").write_text(f"#!/bin/sh\necho {folder.name}\n")
        (folder / "one").chmod(0o755)
    monkeypatch.setenv("PATH", f"{ours}:{real}:{os.environ['PATH']}")
    monkeypatch.setenv("BASH_FUNC_one%%", f'() {{ {ours}/one "$@"; }}')
    monkeypatch.setenv("BASH_FUNC_theirs%%", "() { echo theirs; }")
    command = ["bash", "-c", "one; theirs"]
    assert subprocess.check_output(command, text=True) == "ours\ntheirs\n"
    inside.leave()
    assert subprocess.check_output(command, text=True) == "real\ntheirs\n"


@pytest.mark.parametrize(
    ("launcher", "variable"),
    [
        (["srun", "-N2", "--ntasks-per-node=3"], "SLURM_NTASKS"),
        (["mpirun", "-np", "6", "-N", "3"], "OMPI_COMM_WORLD_SIZE"),
    ],
)
def test_a_shell_between_a_launcher_and_its_ranks_changes_nothing(
    folder: Path, launcher: list[str], variable: str
) -> None:
    (folder / "data.txt").write_text("8")
    (folder / "train.py").write_text(TRAIN.replace("WORLD_SIZE", variable))
    dry = dry_run([*launcher, "bash", "-c", "python train.py 0.1"], 60.0)
    assert (dry.fingerprint.sizes["parameters"], dry.processes) == (4 * (8 * 6 + 6), 3)


def test_numbers_that_are_given_hold_for_the_programs_of_a_shell(folder: Path) -> None:
    (folder / "data.txt").write_text("8")
    dry = dry_run(["bash", "-c", "python train.py 0.1"], 60.0, nodes=2, processes=3)
    assert (dry.fingerprint.sizes["parameters"], dry.processes) == (4 * (8 * 6 + 6), 3)


def test_a_script_that_chooses_gpus_has_those(folder: Path) -> None:
    (folder / "data.txt").write_text("8")
    (folder / "train.py").write_text(TRAIN.replace('int(os.environ.get("WORLD_SIZE", 1))', "torch.cuda.device_count()"))
    for line, count in (
        ("python train.py 0.1", 4),
        ("export CUDA_VISIBLE_DEVICES=0,2; python train.py 0.1", 2),
        ("CUDA_VISIBLE_DEVICES=0,1,4,2 python train.py 0.1", 2),
        ("CUDA_VISIBLE_DEVICES=GPU-8f0c python train.py 0.1", 4),
    ):
        dry = dry_run(["bash", "-c", line], 60.0, gpus="4x H100")
        assert dry.fingerprint.sizes["parameters"] == 4 * (8 * count + count)


def test_the_reason_names_what_went_wrong_in_the_program(folder: Path) -> None:
    with pytest.raises(UnknownReason, match=r"No such file or directory: .*missing\.py"):
        dry_run(["sh", "-c", "python missing.py"], 60.0)
    with pytest.raises(UnknownReason, match=r"nothing that `sh -c 'python prepare.py'` started made a training step"):
        dry_run(["sh", "-c", "python prepare.py"], 60.0)
    with pytest.raises(UnknownReason, match=r"exit code 3"):
        dry_run(["sh", "-c", "exit 3"], 60.0)


def test_a_shell_needs_a_sandbox_with_namespaces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SANDBOX_MODE, SandboxMode.RULES)
    with pytest.raises(UnknownReason, match="a shell can be followed only in a sandbox with namespaces"):
        dry_run(["sh", "train.sh", "0.1"], 60.0)
