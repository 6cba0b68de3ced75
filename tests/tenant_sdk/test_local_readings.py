"""What the sidecar reads of the processes of a job, of its control groups and of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pharoah.local_alerts._readings import (
    MachineReading,
    SteppingThreads,
    cores_of,
    read_machine,
    read_process,
    space_of,
    workers_of,
)
from pharoah.local_alerts._step_windows import SKIPPED_STEPS, Moment, RankSteps
from tests.harness.local_views import process_reading

MEMORY_STAT = "anon 600\ninactive_file 100\nactive_file 120\nslab_reclaimable 30\nshmem 50\n"


@pytest.mark.parametrize("schedstat", [None, "0 0 0\n", ""])
def test_without_times_of_the_scheduler_the_main_thread_is_read_from_its_ticks(
    tmp_path: Path, schedstat: str | None
) -> None:
    columns = ["S", *["0"] * 10, "300", "50", "0", "0", *["0"] * 20]
    (tmp_path / "7/task/7").mkdir(parents=True)
    (tmp_path / "7/stat").write_text(f"7 (python) {' '.join(columns)}\n")
    columns[11] = "200"
    (tmp_path / "7/task/7/stat").write_text(f"7 (python) {' '.join(columns)}\n")
    (tmp_path / "7/statm").write_text("100 50 10 1 0 40 0\n")
    if schedstat is not None:
        (tmp_path / "7/schedstat").write_text(schedstat)
    process = read_process(7, (), tmp_path)
    assert process is not None
    ticks = os.sysconf("SC_CLK_TCK")
    assert (process.computed_seconds, process.main_computed_seconds) == (350 / ticks, 250 / ticks)
    assert process.main_queued_seconds == 0


def test_threads_that_compute_backward_passes_count_as_the_main_thread_which_waits_for_them(tmp_path: Path) -> None:
    """The threads of a program are those that it has at its look: a backward thread begins with the first step."""

    def write(*names: str) -> None:
        columns = ["S", *["0"] * 16, str(len(names)), *["0"] * 20]
        (tmp_path / "7/stat").write_text(f"7 (python) {' '.join(columns)}\n")
        for number, name in enumerate(names, 7):
            thread = tmp_path / "7/task" / str(number)
            thread.mkdir(parents=True, exist_ok=True)
            (thread / "comm").write_text(f"{name}\n")
            (thread / "schedstat").write_text(f"{10**9 * number} {10**8 * number} 5\n")

    (tmp_path / "7").mkdir()
    (tmp_path / "7/statm").write_text("100 50 10 1 0 40 0\n")
    (tmp_path / "7/schedstat").write_text("7000000000 700000000 5\n")
    for names, seconds in ((("python", "pt_data"), 7), (("python", "pt_data", "pt_autograd_0"), 7 + 9)):
        write(*names)
        process = read_process(7, (), tmp_path)
        assert process is not None
        assert process.main_computed_seconds == pytest.approx(seconds)
        assert process.main_queued_seconds == pytest.approx(seconds / 10)


def test_a_thread_that_steps_counts_from_its_first_step_on_as_the_main_thread_which_waits_for_it(
    tmp_path: Path,
) -> None:
    """What it had computed before does not, and what one has that ended goes on to count."""

    def write(thread: int, seconds: float) -> None:
        folder = tmp_path / "7/task" / str(thread)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "comm").write_text("pt_autograd_0\n" if thread == 9 else "python\n")
        (folder / "stat").write_text(f"{thread} (python) R\n")
        (folder / "schedstat").write_text(f"{int(1e9 * seconds)} {int(1e8 * seconds)} 5\n")

    def computed() -> float:
        reading = read_process(7, (), tmp_path, threads=threads)
        assert reading is not None
        assert reading.main_queued_seconds == pytest.approx(reading.main_computed_seconds / 10)
        return reading.main_computed_seconds

    columns = ["S", *["0"] * 16, "3", *["0"] * 20]
    write(8, 5.0)
    write(9, 1.0)
    (tmp_path / "7/stat").write_text(f"7 (python) {' '.join(columns)}\n")
    (tmp_path / "7/statm").write_text("100 50 10 1 0 40 0\n")
    (tmp_path / "7/schedstat").write_text("7000000000 700000000 5\n")
    threads = SteppingThreads(7, tmp_path)
    for thread in (8, 9, 10):  # the second is counted anyway, and the third is not there
        threads.note_step(thread)
    assert computed() == pytest.approx(7 + 1)
    write(8, 5.5)
    threads.note_step(8)
    assert computed() == pytest.approx(7 + 1 + 0.5)
    shutil.rmtree(tmp_path / "7/task/8")
    assert computed() == pytest.approx(7 + 1 + 0.5)


def test_a_process_and_its_machine_are_read_from_the_kernel() -> None:
    process = read_process(os.getpid())
    assert process is not None
    assert process.computed_seconds > 0
    assert process.resident_bytes > 1 << 20
    machine = read_machine(os.getpid(), cores_of(os.getpid()))
    assert machine.busy_seconds > 0 and machine.cores == os.cpu_count()
    assert machine.available_bytes
    space = space_of("/tmp")
    assert space is not None and space.free_bytes > 0 and space.device == Path("/tmp").stat().st_dev
    assert space_of("/does/not/exist") is None
    assert read_process(2**22 + 1) is None


@pytest.mark.parametrize(
    ("line", "folder", "files"),
    [
        ("0::/job", "job", {"memory.max": "1000", "memory.current": "700", "memory.stat": MEMORY_STAT}),
        (
            "4:memory:/job",
            "memory/job",
            {
                "memory.limit_in_bytes": "1000",
                "memory.usage_in_bytes": "700",
                "memory.stat": "total_inactive_file 100\ntotal_active_file 150\nactive_file 7\n",
            },
        ),
    ],
)
def test_limits_of_control_groups_of_both_versions_are_read(
    tmp_path: Path, line: str, folder: str, files: dict[str, str]
) -> None:
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "7").mkdir(parents=True)
    (proc / "7" / "cgroup").write_text(f"{line}\n")
    (groups / folder).mkdir(parents=True)
    for name, text in files.items():
        (groups / folder / name).write_text(text)
    assert read_machine(7, (), proc, groups).group_free_bytes == 550


def test_a_group_is_found_where_the_kernel_lists_its_controllers_in_another_order_than_its_folder(
    tmp_path: Path,
) -> None:
    """The folder `cpu,cpuacct` has a link for each of its controllers."""
    proc, groups = tmp_path / "proc", tmp_path / "groups"
    (proc / "7").mkdir(parents=True)
    (proc / "7/cgroup").write_text("4:cpuacct,cpu:/job\n")
    columns = ["S", *["0"] * 40]
    (proc / "7/stat").write_text(f"7 (python) {' '.join(columns)}\n")
    (proc / "7/statm").write_text("100 50 10 1 0 40 0\n")
    (groups / "cpu,cpuacct/job").mkdir(parents=True)
    (groups / "cpu").symlink_to("cpu,cpuacct")
    (groups / "cpu,cpuacct/job/cpu.stat").write_text("nr_throttled 3\nthrottled_time 2500000000\n")
    process = read_process(7, (), proc, groups)
    assert process is not None and process.throttled_seconds == 2.5


def test_pages_that_are_used_again_and_again_are_no_memory_that_is_used_up(tmp_path: Path) -> None:
    """A data set that is read anew in each epoch fills the cache up to the limit, and is given up before anything
    fails."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/cgroup").write_text("0::/job\n")
    (tmp_path / "groups/job").mkdir(parents=True)
    for cached in (0, 300, 600):
        files = {
            "memory.max": "1000",
            "memory.current": f"{200 + cached}",
            "memory.stat": f"anon 200\nactive_file {cached}\n",
        }
        for name, text in files.items():
            (tmp_path / "groups/job" / name).write_text(text)
        assert read_machine(7, (), tmp_path / "proc", tmp_path / "groups").group_free_bytes == 800


def test_time_that_other_machines_take_is_that_of_the_cores_of_the_job(tmp_path: Path) -> None:
    def line(name: str, busy: int, stolen: int) -> str:
        return f"{name} {busy} 0 0 5000 9 0 0 {stolen} 0 0\n"

    tmp_path.joinpath("stat").write_text(
        line("cpu", 900, 600) + line("cpu0", 100, 0) + line("cpu1", 300, 200) + line("cpu2", 500, 400) + "intr 1\n"
    )
    ticks = os.sysconf("SC_CLK_TCK")
    for cores, busy, stolen in (({1, 2}, 800, 600), ({0}, 100, 0), (set[int](), 900, 600)):
        machine = read_machine(7, cores, tmp_path)
        assert machine.stolen_seconds == pytest.approx(stolen / ticks) and machine.cores == 3
        assert machine.wanted_seconds == pytest.approx((busy + stolen) / ticks)
        assert machine.busy_seconds == pytest.approx(900 / ticks)


def test_shares_of_stolen_and_throttled_time_are_of_the_time_in_which_something_was_ready() -> None:
    """Four of many cores work and lose 30 % of them; of eight threads under a limit of two cores, each stands still for
    three quarters of the time."""
    rank = RankSteps()
    rank.note_step([0.1] * SKIPPED_STEPS)
    for at in range(7):
        rank.note_step([0.1] * 10)
        process = process_reading(throttled_seconds=6.0 * at)
        machine = MachineReading(stolen_seconds=1.2 * at, wanted_seconds=4.0 * at, cores=96)
        rank.look(Moment(at, process, machine, 2.0 * at))
    (window,) = rank.windows
    assert window.stolen == pytest.approx(0.3 * 0.1)
    assert window.throttled == pytest.approx(0.75 * 0.1)


def test_what_workers_move_is_read() -> None:
    code = (
        "import time\nfor _ in range(100): open('/dev/null', 'w').write('x' * 1000)\nprint(flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None and worker.stdout.readline()
            reading = read_process(os.getpid(), (worker.pid,))
            assert reading is not None and reading.worker_moved_bytes >= 100_000
        finally:
            worker.kill()


def test_the_sidecar_that_a_rank_has_started_is_none_of_its_workers() -> None:
    parent = os.getppid()
    workers = workers_of(parent)
    assert os.getpid() not in workers
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            assert child.pid not in workers_of(parent), "nor is what the sidecar has started"
        finally:
            child.kill()
