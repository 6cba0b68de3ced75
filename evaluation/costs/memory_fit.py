"""Does a job fit? Predictions of dry runs against real runs under a memory limit, and whether remedies work.

The limit is RLIMIT_DATA, set when everything is imported; the allocator is set as in node profiles with a limit.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import mean

from evaluation.figures import Figures
from evaluation.models.training_worker import Worker
from pharoah.cost.advice import advise
from pharoah.cost.memory import peak
from pharoah.cost.memory_fit import MemoryBudget
from pharoah.cost.mitigation import Mitigation
from pharoah.cost.step import StepCost
from pharoah.dryrun import dry_run
from pharoah_protocol.node_profile import NodeProfile, environment

CASES = {
    "gpt2": "--batch-size 16 --width 256 --length 128 --depth 4",
    "llama": "--batch-size 24 --width 256 --length 128 --depth 4",
    "bert": "--batch-size 24 --width 256 --length 128 --depth 4",
    "electra": "--batch-size 48 --width 256 --length 128",
    "t5": "--batch-size 24 --width 256 --length 64 --depth 3",
    "mixtral": "--batch-size 24 --width 256 --length 128",
    "mamba": "--batch-size 32 --width 128 --length 128",
    "lstm": "--batch-size 64 --width 320 --length 96",
    "vit": "--batch-size 64 --width 256 --length 64 --depth 4",
    "swin": "--batch-size 16 --width 64 --length 64",
    "resnet": "--batch-size 64 --width 128 --depth 3",
    "unet": "--batch-size 6 --width 64 --length 48",
    "dlrm": "--batch-size 4096 --width 64 --vocabulary 100000",
    "mlp": "--batch-size 8192 --width 1024 --length 512 --depth 5",
    "wav2vec2": "--batch-size 3 --width 128 --length 256",
    "whisper": "--batch-size 24 --width 256 --length 128 --depth 3",
    "clip": "--batch-size 32 --width 256 --length 64 --depth 4",
}
"""A family's job of a few hundred megabytes; three sizes of each are tried."""
LIMITS_OF_EACH = 6
SEED = 20
WORKERS = 2
TIMEOUT_SECONDS = 120.0


@dataclass
class Job:
    family: str
    arguments: list[str]
    cost: StepCost
    needed: int
    """Bytes by which its data segment really grows."""

    @property
    def counted(self) -> int:
        """Bytes of tensors and kernels."""
        return peak(self.cost.memory).bytes

    @property
    def besides(self) -> int:
        return self.needed - self.counted


_local = threading.local()


def measure(figures: Figures, quick: bool) -> None:
    families = list(CASES)[: 3 if quick else None]
    with ExitStack() as workers, ThreadPoolExecutor(WORKERS, initializer=_take_worker, initargs=(workers,)) as pool:
        found = list(pool.map(lambda family: _jobs(family, 1 if quick else 3), families))
        limits(figures, pool, [job for jobs in found for job in jobs])
        advice(figures, pool, [jobs[0] for jobs in found])


def _take_worker(workers: ExitStack) -> None:
    _local.worker = workers.enter_context(Worker(environment(NodeProfile(memory_limit_bytes=1))))


def _ends(arguments: Sequence[str], limit: int) -> bool:
    """Whether a real run comes to its end, in this thread's worker."""
    return _local.worker.run("ends", arguments, limit=limit) is True


def _jobs(family: str, count: int) -> list[Job]:
    options = CASES[family].split()
    batch = int(options[1])
    sizes = [
        options,
        ["--batch-size", str(batch * 3 // 2), *options[2:]],
        ["--batch-size", str(batch), *options[2:], "--bf16"],
    ]
    jobs = []
    for size in sizes[:count]:
        arguments = [family, *size]
        job = Job(
            family, arguments, what_if(command_of(arguments), Mitigation()), _local.worker.run("memory", arguments)
        )
        print(
            f"  {' '.join(arguments):75} {job.needed / 1e6:7.1f} MB,"
            f" tensors {peak(job.cost.memory, tensors_only=True).bytes / 1e6:7.1f},"
            f" with kernels {job.counted / 1e6:7.1f}, besides {job.besides / 1e6:+5.1f}",
            flush=True,
        )
        jobs.append(job)
    return jobs


def limits(figures: Figures, pool: Executor, jobs: list[Job]) -> None:
    """Jobs that need 0.8 to 1.2 times their limit: which run out of memory, and for which was it predicted?"""
    chance = random.Random(SEED)
    trials = [(job, int(job.needed / chance.uniform(0.8, 1.2))) for job in jobs for _ in range(LIMITS_OF_EACH)]
    failed = list(pool.map(lambda trial: not _ends(trial[0].arguments, trial[1]), trials))
    learned = {job.family: _learned(job.family, jobs) for job in jobs}
    predicted = [job.counted + learned[job.family] > limit for job, limit in trials]
    right = sum(fails and expected for fails, expected in zip(failed, predicted, strict=True))
    figures.add("oom_runs", len(trials), ">= 300 unless --quick")
    figures.add("bytes_besides_tensors_and_kernels", mean(job.besides for job in jobs), "printed")
    figures.ratio("oom_precision", right, sum(predicted), 0.95)
    figures.ratio("oom_recall", right, sum(failed), 0.95)


def _learned(family: str, jobs: list[Job]) -> float:
    """The bytes besides tensors and kernels, learned from the other families."""
    return mean(job.besides for job in jobs if job.family != family)


def advice(figures: Figures, pool: Executor, jobs: list[Job]) -> None:
    """Jobs that need 1.4 times their limit: do they run with the remedies that are advised?"""
    worked = [ended for tried in pool.map(_follow, jobs) for ended in tried]
    figures.ratio("fix_works_ratio", sum(worked), len(worked), 0.95)


def _follow(job: Job) -> list[bool]:
    budget = MemoryBudget("limit", int(job.needed / 1.4), inside=True)
    worked = []
    for option in advise(command_of(job.arguments), job.cost, budget, what_if):
        arguments = [*option.command[3:]]
        arguments += ["--gradient-checkpointing"] * option.change.checkpointing
        arguments += ["--bf16"] * option.change.autocast + ["--fused"] * option.change.fused
        if (parts := int(job.arguments[2]) // int(arguments[2])) > 1:
            arguments += ["--micro-batches", str(parts)]
        worked.append(_ends(arguments, budget.bytes))
        print(f"  {job.family:10} {option.what}: {'runs' if worked[-1] else 'does not run'}", flush=True)
    if not worked:
        print(f"  {job.family:10} no remedy", flush=True)
    return worked


def command_of(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "evaluation.scripts.train_zoo", *arguments]


def what_if(command: Sequence[str], change: Mitigation) -> StepCost:
    return dry_run(command, TIMEOUT_SECONDS, change=change).cost
