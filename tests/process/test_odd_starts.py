"""`pharoah run` where what starts it, what it starts, or who ends it is not as usual."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pharoah as pharoah_package
from tests.harness.until import wait_until
from tests.process.test_processes import NOWHERE, SHORT_DRY_RUN, pharoah, run, script

PHAROAH_RUN = [sys.executable, "-m", "pharoah", "run", "--"]
IGNORING = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_the_exit_code_is_that_of_the_job_where_the_starter_ignores_how_children_end(mode: str) -> None:
    """The kernel then forgets it."""
    job = [*PHAROAH_RUN, sys.executable, "-c", "raise SystemExit(3)"]
    assert run(sys.executable, "-c", IGNORING, *job, PHAROAH_MODE=mode, **SHORT_DRY_RUN).returncode == 3


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_a_script_without_a_first_line_is_given_to_the_shell(mode: str, tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_text('echo "$0 $1"\nexit 5\n')
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PHAROAH_MODE": mode, **SHORT_DRY_RUN}
    for name in (str(program), "train"):
        alone = run("sh", "-c", f"{name} word", **path)
        watched = pharoah("run", "--", name, "word", **path)
        assert (watched.returncode, watched.stdout) == (5, alone.stdout), watched.stderr


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGXCPU, signal.SIGALRM, signal.SIGRTMIN + 3])
def test_every_signal_that_can_end_a_job_reaches_it(number: int, tmp_path: Path) -> None:
    source = f"""
    import signal, sys, time
    signal.signal({int(number)}, lambda *_: sys.exit(42))
    print("ready", flush=True)
    for _ in range(600):
        time.sleep(0.1)
    """
    environ = {**os.environ, "PHAROAH_MODE": "disabled"}
    command = [*PHAROAH_RUN, sys.executable, script(tmp_path, source)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, start_new_session=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell ignores SIGQUIT in the background
    ) as process:  # fmt: skip
        assert process.stdout and process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == 42


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_check_ends_by_its_signal_and_the_next_one_leaves_no_folder(number: signal.Signals, tmp_path: Path) -> None:
    started, folders = tmp_path / "started", tmp_path / "tmp"
    folders.mkdir()
    source = f"import time; open({str(started)!r}, 'w'); time.sleep(60)"
    command = [sys.executable, "-m", "pharoah", "check", "--", sys.executable, script(tmp_path, source)]
    environ = {**os.environ, "TMPDIR": str(folders), "PHAROAH_ENDPOINT": NOWHERE, "PHAROAH_DRY_RUN_UNPROTECTED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        wait_until(lambda: any(folders.glob("pharoah-dry-run-*")), "the dry run", 30)
        process.send_signal(number)
        assert process.wait(20) == -number
    environ |= SHORT_DRY_RUN
    subprocess.run(command, env=environ, capture_output=True, timeout=60)
    assert not list(folders.glob("pharoah-dry-run-*"))
    for sidecar in _processes_with(str(folders)):  # it waits a minute for the first rank
        os.kill(sidecar, signal.SIGKILL)
    wait_until(lambda: not _processes_with(str(folders)), "the end of the sidecar", 20)


def _processes_with(text: str) -> list[int]:
    """Processes that have a text in a variable."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if text.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def test_a_program_of_a_job_under_python_2_finds_its_modules(tmp_path: Path) -> None:
    python = shutil.which("python2.7")
    if python is None or run(python, "-c", "").returncode:
        pytest.skip("there is no Python 2 here")
    source = script(tmp_path, "import json\nprint(json.dumps(1))")
    done = pharoah("run", "--", python, source, PHAROAH_MODE="offline", **SHORT_DRY_RUN)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert "sitecustomize" not in done.stderr


ABOUT_TORCH = """
import importlib.util, sys
importlib.util.find_spec("torch")  # as libraries ask that go without it
import torch
parts = [name for name in list(sys.modules) if name.startswith("torch.")]
print(*sorted(name for name in parts if not hasattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])))
print("pharoah.capture.hooks" in sys.modules)
"""


def test_torch_is_the_same_where_it_is_watched() -> None:
    """What is imported in the middle of torch's own import may be missing in the package that holds it."""
    injected = {"PYTHONPATH": str(Path(pharoah_package.__file__).with_name("_inject")), "PHAROAH_SIDECAR": "/nowhere"}
    alone, watched = (run(sys.executable, "-c", ABOUT_TORCH, **environ) for environ in ({}, injected))
    (nameless, hooks), (nameless_watched, hooks_watched) = alone.stdout.splitlines(), watched.stdout.splitlines()
    assert nameless_watched == nameless and (hooks, hooks_watched) == ("False", "True")


TWO_FINDERS = """
import importlib.util, sys
from pharoah._inject.pharoah_finder import Finder
called, others = [], list(sys.meta_path)
sys.meta_path[:0] = [Finder(lambda: called.append("first")), Finder(lambda: called.append("second"))]
assert importlib.util.find_spec("torch") and not called
import torch
assert torch.whole and sorted(called) == ["first", "second"] and sys.meta_path == others
"""


def test_two_that_wait_for_torch_are_both_called_once(tmp_path: Path) -> None:
    """`pharoah run` and `register` may both wait in one process. A small module stands for torch."""
    (tmp_path / "torch.py").write_text("whole = True")
    done = run(sys.executable, "-c", TWO_FINDERS, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_a_frozen_program_is_not_started_again_in_place_of_a_sidecar(tmp_path: Path) -> None:
    source = "import sys; sys.frozen = True; import pharoah; print(pharoah.register().verdict.reason)"
    done = run(sys.executable, script(tmp_path, source), PHAROAH_ENDPOINT=NOWHERE)
    assert "not run by a Python interpreter" in done.stdout, done.stderr
