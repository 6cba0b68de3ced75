"""The interpreter of a job: the one of the launcher's first line, of the script's, or of the environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah.launchers import launch_of

Installed = Callable[..., Path]


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """Write a program into a folder of `tmp_path`."""

    def write(name: str, text: str = "#!/bin/sh\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return write


@pytest.mark.parametrize("name", ["torchrun", "accelerate-launch", "deepspeed", "ipython"])
def test_a_launcher_runs_in_the_interpreter_of_its_first_line(installed: Installed, name: str) -> None:
    python, other = installed("opt/python3.11"), installed("bin/python")
    for first in (f"#!{python}", f"#! {python} -sP", f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''"):
        program = installed(f"bin/{name}", f"{first}\nimport sys\n")
        assert launch_of([str(program), "train.py"]).python == str(python)
    installed("opt/python3.11").unlink()
    assert launch_of([str(program), "train.py"]).python == str(other), "the one that it names is gone"


def test_a_launcher_that_an_interpreter_runs_as_a_script_is_one(installed: Installed) -> None:
    """As the kernel runs it by its first line."""
    launch = launch_of(["/opt/env/bin/python", "-u", "/opt/env/bin/torchrun", "--nproc-per-node=2", "train.py"])
    assert (launch.python, launch.program.launcher, launch.processes) == ("/opt/env/bin/python", "torchrun", 2)
    prefix = installed("envs/one/bin/python").parents[1]
    conda = launch_of(["/opt/conda/bin/python", "/opt/conda/bin/conda", "run", "-p", str(prefix), "python", "train.py"])
    assert conda.python == f"{prefix}/bin/python", "it is the environment that the command names"
    script = launch_of(["python", "/opt/env/bin/tune", "run"])
    assert script.program.arguments == ("/opt/env/bin/tune", "run")


@pytest.mark.parametrize("first", ["#!/usr/bin/env python3", "#!/usr/bin/env -S python3 -sP"])
def test_a_launcher_that_asks_env_runs_in_what_the_search_path_has(installed: Installed, first: str) -> None:
    installed("bin/python")
    program = installed("bin/torchrun", f"{first}\n")
    assert launch_of([str(program), "train.py"]).python == "python3"


def test_a_launcher_without_a_first_line_is_looked_up_where_its_link_leads(installed: Installed) -> None:
    program, link = installed("venv/bin/torchrun", "\x7fELF"), installed("bin/torchrun")
    python = installed("venv/bin/python3")
    link.unlink()
    link.symlink_to(program)
    assert launch_of([str(link), "train.py"]).python == str(python)
    preferred = installed("venv/bin/python")
    assert launch_of([str(link), "train.py"]).python == str(preferred)


@pytest.mark.parametrize(
    ("first", "python", "options"),
    [
        ("#!{python}", "{python}", ()),
        ("#!{python} -Ou", "{python}", ("-O",)),
        ("#!/usr/bin/env python3", "python3", ()),
        ("#!/usr/bin/env -S python3 -X dev", "python3", ("-Xdev",)),
    ],
)
def test_a_script_that_is_executed_runs_in_the_interpreter_of_its_first_line(
    installed: Installed, first: str, python: str, options: tuple[str, ...]
) -> None:
    interpreter = installed("opt/python3.11")
    script = installed("train.py", first.format(python=interpreter) + "\nimport torch\n")
    launch = launch_of([str(script), "--lr", "1"])
    assert (launch.python, launch.options) == (python.format(python=interpreter), options)
    assert launch.program.arguments == (str(script), "--lr", "1")


def test_a_script_whose_interpreter_is_a_script_or_no_python_ends_the_search(installed: Installed) -> None:
    loop = installed("train.py", "#!./train.py\n")
    loop.write_text(f"#!{loop}\n")
    assert launch_of([str(loop)]).program.arguments == (str(loop),)
    with pytest.raises(UnknownReason, match="`node` is not a program"):
        launch_of([str(installed("page.py", "#!/usr/bin/node\n"))])


def test_a_command_of_uv_finds_the_environment_of_its_project(installed: Installed, tmp_path: Path) -> None:
    installed("project/.venv/bin/python")
    project = str(tmp_path / "project")
    for command in (["train.py"], ["python", "train.py"], ["bash", "train.sh"], ["-m", "pkg.train"]):
        environment = launch_of(["uv", "run", "--directory", project, *command]).environment()
        assert environment["VIRTUAL_ENV"] == f"{project}/.venv"
        assert environment["PATH"] == os.pathsep.join((f"{project}/.venv/bin", os.environ["PATH"]))


def test_a_command_of_uv_gets_the_variables_of_its_files(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("project/.venv/bin/python")
    (tmp_path / "project/one.env").write_text("# of the project\nA=1\nexport B='two # words'  # why\nC=\nKEPT=theirs\n")
    (tmp_path / "project/two.env").write_text('A = "2" \nD=x#y\nno variable\n')
    monkeypatch.setenv("KEPT", "ours")
    command = ["uv", "run", "--directory", str(tmp_path / "project"), "--env-file", "one.env", "--env-file=two.env"]
    found = launch_of([*command, "train.py"]).environment()
    assert [found[name] for name in ("A", "B", "C", "D", "KEPT")] == ["2", "two # words", "", "x#y", "ours"]
    with pytest.raises(UnknownReason, match=r"--env-file three\.env`: No such file"):
        launch_of([*command, "--env-file", "three.env", "train.py"])


def test_conda_is_where_its_program_is(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONDA_PREFIX", "CONDA_EXE", "CONDA_ENVS_PATH", "MAMBA_ROOT_PREFIX", "CONDA_ROOT"):
        monkeypatch.delenv(name, raising=False)
    conda, link = installed("conda/bin/conda"), tmp_path / "usr/bin/conda"
    link.parent.mkdir(parents=True)
    link.symlink_to(conda)
    installed("conda/envs/one/bin/python")
    installed("conda/bin/python")
    (tmp_path / "conda/conda-meta").mkdir()
    monkeypatch.setenv("PATH", str(link.parent))
    for program in ("conda", str(link), str(conda)):
        for name, prefix in (("one", "conda/envs/one"), ("base", "conda")):
            launch = launch_of([program, "run", "-n", name, "python", "train.py"])
            assert launch.python == f"{tmp_path}/{prefix}/bin/python"
            assert launch.environment()["CONDA_PREFIX"] == f"{tmp_path}/{prefix}"


def test_the_base_environment_of_conda_is_not_the_one_that_is_active(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("active/bin/python")
    (tmp_path / "active/conda-meta").mkdir()
    installed("root/bin/python")
    (tmp_path / "root/conda-meta").mkdir()
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path / "active"))
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "mine")
    monkeypatch.setenv("MAMBA_ROOT_PREFIX", str(tmp_path / "root"))
    command = ["micromamba", "run", "-n", "base", "python", "train.py"]
    assert launch_of(command).python == f"{tmp_path}/root/bin/python"
    monkeypatch.setenv("CONDA_DEFAULT_ENV", "base")
    assert launch_of(command).python == f"{tmp_path}/active/bin/python"
    command[2:2] = ["-r", str(tmp_path / "root")]
    assert launch_of(command).python == f"{tmp_path}/root/bin/python"
