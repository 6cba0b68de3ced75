"""What the sidecar reads of the processes of a job, of its control groups and of the machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pharoah.local_alerts._readings import cores_of, free_bytes_of, read_machine, read_process, workers_of

MEMORY_STAT = "anon 600\ninactive_file 100\nactive_file 120\nslab_reclaimable 30\nshmem 50\n"


def test_a_process_and_its_machine_are_read_from_the_kernel() -> None:
    process = read_process(os.getpid())
    assert process is not None
    assert process.computed_seconds > 0
    assert process.resident_bytes > 1 << 20
    machine = read_machine(os.getpid(), cores_of(os.getpid()))
    assert machine.busy_seconds > 0 and machine.cores == os.cpu_count()
    assert machine.available_bytes
    assert list(free_bytes_of(["/tmp", "/tmp", "/does/not/exist"])) == ["/tmp"]
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
    def line(name: str, stolen: int) -> str:
        return f"{name} 100 0 0 500 0 0 0 {stolen} 0 0\n"

    tmp_path.joinpath("stat").write_text(
        line("cpu", 600) + line("cpu0", 0) + line("cpu1", 200) + line("cpu2", 400) + "intr 1\n"
    )
    ticks = os.sysconf("SC_CLK_TCK")
    for cores, stolen in (({1, 2}, 300), ({0}, 0), ({0, 1, 2}, 200), (set[int](), 200)):
        machine = read_machine(7, cores, tmp_path)
        assert machine.stolen_seconds == pytest.approx(stolen / ticks) and machine.cores == 3


def test_the_sidecar_that_a_rank_has_started_is_none_of_its_workers() -> None:
    parent = os.getppid()
    workers = workers_of(parent)
    assert os.getpid() not in workers
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            assert child.pid not in workers_of(parent), "nor is what the sidecar has started"
        finally:
            child.kill()
