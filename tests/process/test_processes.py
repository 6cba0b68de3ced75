"""The promises to a training process, kept in real processes: inert forks, exit codes, signals, short exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.harness.until import wait_until

TRAIN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4, num_workers=2)
for (x,) in loader:
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print("loss", loss.item().hex())
"""
NOWHERE = "127.0.0.1:9"
SHORT_DRY_RUN = {"PHAROAH_DRY_RUN_TIMEOUT_S": "0.05"}
"""It ends before it has imported torch. For tests of what follows a dry run, whatever came of it."""


def script(folder: Path, source: str) -> str:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(source))
    return str(path)


def run(*command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, **environ},
        stdin=subprocess.DEVNULL,
    )


def pharoah(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "pharoah", *arguments, **environ)


def test_a_job_under_pharoah_trains_as_without_it(tmp_path: Path) -> None:
    path = script(tmp_path, TRAIN)
    bare = run(sys.executable, path)
    watched = pharoah("run", "--", sys.executable, path, PHAROAH_ENDPOINT=NOWHERE)
    assert bare.returncode == watched.returncode == 0, watched.stderr
    assert bare.stdout == watched.stdout
    assert "UNKNOWN" in watched.stderr


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_passes_through(tmp_path: Path, code: int) -> None:
    path = script(tmp_path, f"raise SystemExit({code})")
    dry_run = {} if code == 7 else SHORT_DRY_RUN
    assert pharoah("run", "--", sys.executable, path, **dry_run).returncode == code


def test_usage_errors_are_2_and_missing_commands_127(tmp_path: Path) -> None:
    done = pharoah("run")
    assert done.returncode == 2 and "after `--`" in done.stderr
    assert pharoah("run", "--", str(tmp_path / "nothing-here")).returncode == 127
    assert pharoah("run", "--gate", "sometimes", "--", "true").returncode == 2


def test_strict_and_require_online_stop_before_the_launch(tmp_path: Path) -> None:
    path = script(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert pharoah("run", "--strict", "--", sys.executable, path).returncode == 11
    assert pharoah("run", "--require-online", "--", sys.executable, path, **SHORT_DRY_RUN).returncode == 12
    assert not (tmp_path / "ran").exists()


def test_sigterm_reaches_the_job_and_its_code_comes_back(tmp_path: Path) -> None:
    source = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
    print("ready", flush=True)
    for _ in range(600):  # one long sleep is not ended by a signal that comes just before it begins
        time.sleep(0.1)
    """
    command = [sys.executable, "-m", "pharoah", "run", "--", sys.executable, script(tmp_path, source)]
    environ = {**os.environ, "PHAROAH_DRY_RUN_TIMEOUT_S": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ) as process:
        assert process.stdout and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 42


@pytest.mark.parametrize("pidfd", ["there", "not on this kernel", "not in this Python"])
def test_a_signal_that_does_not_end_the_waiting_reaches_the_job(tmp_path: Path, pidfd: str) -> None:
    """The main thread blocks the signal, so that another one gets it: the wait of the main thread goes on."""
    source = f"""
    import os, signal, subprocess, sys, threading, time
    from pharoah.cli import _job_process
    def missing(_):
        raise OSError("no pidfd on this kernel")
    if {pidfd!r} == "not on this kernel":
        os.pidfd_open = missing
    elif {pidfd!r} == "not in this Python":
        del os.pidfd_open
    job = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\\n"
        "print('ready', flush=True)\\n"
        "for _ in range(600): time.sleep(0.1)"
    )
    child = subprocess.Popen([sys.executable, "-c", job], stdout=subprocess.PIPE)
    with _job_process.SignalForwarding() as signals:
        signals.to(child)
        def send():
            child.stdout.readline()
            os.kill(os.getpid(), signal.SIGTERM)
        threading.Thread(target=send).start()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        sys.exit(_job_process.wait_for(child))
    """
    assert run(sys.executable, script(tmp_path, source)).returncode == 42


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV])
def test_a_job_that_dies_by_a_signal_ends_pharoah_run_by_that_signal(tmp_path: Path, number: signal.Signals) -> None:
    path = script(tmp_path, f"import os, signal; signal.signal({number}, 0); os.kill(os.getpid(), {number})")
    if number == signal.SIGKILL:  # has no handler that could be reset
        path = script(tmp_path, "import os; os.kill(os.getpid(), 9)")
    command = [sys.executable, "-m", "pharoah", "run", "--", sys.executable, path]
    assert run(*command, PHAROAH_MODE="disabled").returncode == -number
    dry_run = {} if number == signal.SIGTERM else SHORT_DRY_RUN
    shell = run("bash", "-c", '"$@"; echo "status $?"', "bash", *command, PHAROAH_ENDPOINT=NOWHERE, **dry_run)
    assert f"status {128 + number}" in shell.stdout, shell.stderr


def test_a_job_that_dies_by_a_signal_leaves_one_core_dump_at_most(tmp_path: Path) -> None:
    path = script(tmp_path, "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()")
    command = [sys.executable, "-m", "pharoah", "run", "--", sys.executable, path]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "PHAROAH_MODE": "disabled"})
    _, status = os.waitpid(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == -signal.SIGABRT and not os.WCOREDUMP(status)


@pytest.mark.parametrize("words", [["-W", "ignore"], ["-X", "dev"], ["-Wignore", "-u"]], ids=" ".join)
def test_options_of_python_are_part_of_the_command(tmp_path: Path, words: list[str]) -> None:
    path = script(tmp_path, "import sys; print(sys.warnoptions, sys.flags.dev_mode)")
    dry_run = {} if "dev" in words else SHORT_DRY_RUN
    bare, watched = run(sys.executable, *words, path), pharoah("run", "--", sys.executable, *words, path, **dry_run)
    assert (watched.returncode, watched.stdout) == (0, bare.stdout), watched.stderr


def test_env_is_part_of_the_command(tmp_path: Path) -> None:
    path = script(tmp_path, "import os; print(os.environ['MINE'])")
    done = pharoah("run", "--", "env", "MINE=1", sys.executable, path, PHAROAH_ENDPOINT=NOWHERE)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert pharoah("check", "--", "env", "MINE=1", sys.executable, path).returncode == 0


REGISTERED = """
import os, time
import torch
import pharoah
began = time.monotonic()
session = pharoah.register(lambda: None)
{body}
print("steps", session.status().get("steps"))
leaving = time.monotonic()
session.finish()
assert time.monotonic() - leaving < 2.5, "finish took too long"
"""


def test_leaving_takes_at_most_two_seconds_with_a_provider_that_is_gone(tmp_path: Path) -> None:
    path = script(tmp_path, REGISTERED.format(body="[session.step() for _ in range(30)]"))
    done = run(sys.executable, path, PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert "steps 30" in done.stdout


def test_a_sidecar_that_dies_does_not_harm_the_job(tmp_path: Path) -> None:
    body = """
import shutil, signal
from pharoah_system.local_sockets import peer_credentials
sidecar = peer_credentials(session._link._socket).process
os.kill(sidecar, signal.SIGKILL)
shutil.rmtree(os.path.dirname(session._link.path))  # nobody else does
for _ in range(200):
    session.step()
"""
    done = run(sys.executable, script(tmp_path, REGISTERED.format(body=body)), PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert "steps 200" in done.stdout


def test_a_job_may_wait_for_all_of_its_children_and_end_them_while_its_sidecar_runs(tmp_path: Path) -> None:
    body = """
from pharoah_system.local_sockets import peer_credentials
from pharoah_system.process_family import descendants, lives
assert lives(peer_credentials(session._link._socket).process)
assert list(descendants(os.getpid())) == []
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    session.step()
"""
    done = run(sys.executable, script(tmp_path, REGISTERED.format(body=body)), PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert "steps 1" in done.stdout


def test_forked_children_are_inert(tmp_path: Path) -> None:
    body = """
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    again = pharoah.register()
    session.step(); session.finish()
    os.write(write, again.verdict.status.encode() + b" " + str(session.status()["connected"]).encode())
    os._exit(0)
os.waitpid(pid, 0)
assert os.read(read, 100) == b"unknown False"
session.step()
"""
    done = run(sys.executable, script(tmp_path, REGISTERED.format(body=body)), PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert "steps 1" in done.stdout, "the parent goes on"


def test_no_sidecar_is_left_behind(tmp_path: Path) -> None:
    path = script(tmp_path, REGISTERED.format(body="print('folder', session._link.path)"))
    done = run(sys.executable, path, PHAROAH_ENDPOINT=NOWHERE)
    folder = done.stdout.split()[1]
    assert Path(folder).name == "sidecar.sock", "it had one"
    wait_until(lambda: not Path(folder).exists(), "the sidecar to end")


def test_without_a_provider_register_opens_nothing(tmp_path: Path) -> None:
    source = """
    import os, threading
    import pharoah
    before = set(os.listdir("/proc/self/fd"))
    session = pharoah.register()
    session.step(); session.finish()
    assert session.verdict.status == "unknown" and "PHAROAH_ENDPOINT" in session.verdict.reason
    assert threading.active_count() == 1
    assert set(os.listdir("/proc/self/fd")) == before
    """
    done = run(sys.executable, script(tmp_path, source))
    assert done.returncode == 0, done.stderr


def test_disabled_means_disabled(tmp_path: Path) -> None:
    path = script(tmp_path, "import os; print(os.environ.get('PHAROAH_SIDECAR'))")
    done = pharoah("run", "--", sys.executable, path, DO_NOT_TRACK="1", PHAROAH_ENDPOINT=NOWHERE)
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'")
    path = script(tmp_path, "print(mine)")
    search_path = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    done = pharoah("run", "--", sys.executable, path, PYTHONPATH=search_path, **SHORT_DRY_RUN)
    assert done.stdout == "ran\n", done.stderr


def test_steps_are_seen_though_torch_is_imported_after_register(tmp_path: Path) -> None:
    source = f"import pharoah\nsession = pharoah.register()\n{TRAIN}print(session.status()['steps'])\n"
    done = run(sys.executable, script(tmp_path, source), PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "16"


SPAWNED = """
import sys, torch, torch.distributed as dist, torch.multiprocessing as mp

def main(rank):
    if sys.argv[2:]:
        import pharoah
        session = pharoah.register()
    dist.init_process_group("gloo", rank=rank, world_size=3, init_method="file://" + sys.argv[1])
    activation = torch.nn.GELU() if rank == 2 else torch.nn.ReLU()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), activation))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(8):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    if sys.argv[2:]:
        print(f"{session.run_id} {session.verdict.reason}\\n", end="")

if __name__ == "__main__":
    helper = mp.get_context("spawn").Process(target=len, args=("",))
    helper.start()
    helper.join()
    mp.spawn(main, nprocs=3)
"""


def test_ranks_that_a_script_spawns_itself_are_distinguished(tmp_path: Path) -> None:
    path = script(tmp_path, SPAWNED)
    allocation = {"SLURM_PROCID": "0", "SLURM_NTASKS_PER_NODE": "1"}  # of the script, not of its ranks
    state = {"PHAROAH_STATE_DIR": str(tmp_path), "PHAROAH_ENDPOINT": NOWHERE}
    done = pharoah("run", "--", sys.executable, path, str(tmp_path / "store"), **allocation, **state)
    assert "rank 2 does not run what ranks 0, 1 run: calls aten.gelu" in " ".join(done.stderr.split())
    [record] = tmp_path.rglob("*.json")
    assert json.loads(record.read_text())["run"]["steps"] == 6  # one rank's: all but the first and the captured one


def test_ranks_that_a_script_spawns_itself_register_as_one_run(tmp_path: Path) -> None:
    path = script(tmp_path, SPAWNED)
    done = run(sys.executable, path, str(tmp_path / "store"), "register", PHAROAH_ENDPOINT=NOWHERE)
    assert done.returncode == 0, done.stderr
    printed = [line.partition(" ") for line in done.stdout.splitlines()]
    assert len(printed) == 3 and len({run_id for run_id, _, _ in printed}) == 1
    assert any("no rank has asked" not in reason for _, _, reason in printed)
