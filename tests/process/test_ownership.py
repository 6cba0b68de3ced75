"""Whatever an evaluation or a verb of `dev.py` has started ends with it, also when it is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pharoah_system.own_python import own_module
from pharoah_system.with_parent import WITH_PARENT
from tests.harness.processes import ProcessScope, descendants
from tests.harness.until import wait_until

ROOT = Path(__file__).parents[2]
OWN_SESSION = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"
"""A program that ends at once and leaves a process in another session, as a killed job leaves its sidecar."""


def test_a_scope_ends_what_its_jobs_leave_in_other_sessions() -> None:
    with ProcessScope(job_seconds=0.1) as scope:
        job = scope.own(subprocess.Popen([sys.executable, "-c", OWN_SESSION]))
        job.wait()
        wait_until(lambda: len(scope.running()) == 1, "the orphan to be adopted")
        [orphan] = scope.running()
    assert not psutil.pid_exists(orphan)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_scope_ends_what_it_has_started(number: signal.Signals) -> None:
    program = f"""
import subprocess, sys, time
from tests.harness.processes import ProcessScope, interrupted_once
with interrupted_once(), ProcessScope(job_seconds=0.1):
    subprocess.Popen([sys.executable, "-c", {OWN_SESSION!r}]).wait()
    subprocess.Popen(["sleep", "60"])
    print("ready", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        assert len(set(descendants(process.pid))) == 2
        process.send_signal(number)
        process.send_signal(number)  # somebody is impatient
        assert process.wait(10) != 0
    # what is left now is found by the check after every test


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_verb_lets_its_command_end_by_itself(tmp_path: Path, number: signal.Signals) -> None:
    ended = tmp_path / "ended"
    command = f"""
import signal, sys, time
def end(*_):
    time.sleep(0.6)  # longer than subprocess.run waits before it kills
    open({str(ended)!r}, "w").close()
    sys.exit(7)
signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    verb = f"import sys, dev; dev._call([sys.executable, '-c', {command!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", verb], stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
    ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(10) == 7
    assert ended.exists()


PARENT = """
import os, subprocess, sys, time
from pharoah_system.own_python import own_module
from pharoah_system.with_parent import WITH_PARENT
sys.path.append(sys.argv[1])
child = subprocess.Popen(own_module(WITH_PARENT, str(os.getpid()), "slow_to_import", "an argument"))
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_child_ends_with_its_parent_while_it_still_imports(tmp_path: Path) -> None:
    began = tmp_path / "began"
    module = f"import pathlib, sys, time\npathlib.Path({str(began)!r}).write_text(sys.argv[1])\ntime.sleep(60)\n"
    (tmp_path / "slow_to_import.py").write_text(module)
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: began.exists() and began.read_text() == "an argument", "the child to import")
        parent.kill()
    assert not psutil.wait_procs([child], timeout=10)[1]


def test_a_child_whose_parent_has_ended_before_does_not_begin() -> None:
    command = own_module(WITH_PARENT, str(os.getppid()), "pharoah_benchmarks.campaign.fork_server", "0")
    assert subprocess.run(command, stdin=subprocess.DEVNULL).returncode == 1
