"""Is the difference found that matters? One is planted in the second of two runs, among others without effect.

Every record is made by `pharoah record` in the environment, under the limits and with the arguments that are planted.
Software and a driver that this machine does not have are written into the record.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.figures import Figures
from pharoah.comparison.compare import compare
from pharoah.comparison.record import Record

JOB = ("gpt2", "--batch-size", "4")
ENVIRONMENT = {"PHAROAH_GPUS": "8x NVIDIA H100 80GB HBM3", "OMP_NUM_THREADS": "8"}
SOFTWARE = {"cuda": "12.8", "nccl": "2.27.3", "cudnn": "9.10.2"}
"""Written into every record, because this machine has none of it."""
KEY = b"a key for this evaluation only"
SEED = 5
DECOYS = 4


@dataclass(frozen=True)
class Plant:
    names: tuple[str, ...]
    """It is a hit when one of these is among the first three differences."""
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = JOB
    under: Sequence[str] = ()
    """A command that runs another command with the planted limit."""
    software: Mapping[str, str] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)


def _variable(name: str, value: str) -> Plant:
    return Plant((name,), {name: value})


WORK = ("floating-point operations", "bytes of activations", "bytes of parameters", "bytes of tensors")
PLANTS = [
    *(_variable(name, value) for name, value in {
        "NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
        "NCCL_SOCKET_IFNAME": "docker0", "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_IB_HCA": "mlx5_3",
        "NCCL_NET": "Socket", "NCCL_BUFFSIZE": "65536", "NCCL_MAX_NCHANNELS": "1", "UCX_TLS": "tcp",
        "FI_PROVIDER": "tcp", "CUDA_LAUNCH_BLOCKING": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "TORCH_NCCL_BLOCKING_WAIT": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:32", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1",
        "ATEN_CPU_CAPABILITY": "default", "MALLOC_ARENA_MAX": "1", "GLOO_SOCKET_IFNAME": "lo",
        "CUDA_VISIBLE_DEVICES": "0",
    }.items()),
    Plant(("gpu",), {"PHAROAH_GPUS": "8x NVIDIA A100-SXM4-80GB"}),
    Plant(("gpus",), {"PHAROAH_GPUS": "4x NVIDIA H100 80GB HBM3"}),
    Plant(("driver",), hardware={"driver": "535.54.03"}),
    Plant(("open files",), under=("prlimit", "--nofile=256:")),
    Plant(("memlock",), under=("prlimit", "--memlock=65536:")),
    Plant(("data",), under=("prlimit", "--data=8000000000:")),
    Plant(("cpus",), under=("taskset", "--cpu-list", "0")),
    Plant(("torch",), software={"torch": "2.9.1"}),
    Plant(("nccl",), software={"nccl": "2.18.1"}),
    Plant(("cuda",), software={"cuda": "11.8"}),
    Plant(("cudnn",), software={"cudnn": "8.9.7"}),
    Plant(("transformers",), software={"transformers": "4.40.0"}),
    Plant(("dtype", "autocast"), arguments=(*JOB, "--bf16")),
    Plant(("checkpointing",), arguments=(*JOB, "--gradient-checkpointing")),
    Plant(("optimizer", "adamw fused"), arguments=(*JOB, "--fused")),
    Plant(("archetype", "fwd"), arguments=("bert", *JOB[1:])),
    Plant(WORK, arguments=("gpt2", "--batch-size", "16")),
    Plant(WORK, arguments=(*JOB, "--micro-batches", "4")),
    Plant(WORK, arguments=(*JOB, "--depth", "6")),
    Plant(WORK, arguments=(*JOB, "--width", "128")),
    Plant(WORK, arguments=(*JOB, "--length", "128")),
]  # fmt: skip
HARMLESS = {
    "NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT", "PYTHONHASHSEED": "11", "TOKENIZERS_PARALLELISM": "false",
    "OMP_DISPLAY_ENV": "false", "TRITON_CACHE_DIR": "/var/tmp/triton", "TORCH_HOME": "/var/tmp/torch",
    "TORCH_LOGS": "recompiles",
}  # fmt: skip
"""Variables that change nothing, or only what is logged; in each pair some of them are set in the second run."""


def measure(figures: Figures, quick: bool) -> None:
    chance = random.Random(SEED)
    plants = PLANTS[:: 8 if quick else 1]
    decoys = [dict(chance.sample(sorted(HARMLESS.items()), DECOYS)) for _ in plants]
    with ThreadPoolExecutor(2) as pool:
        base, *records = pool.map(record, [Plant(()), *plants], [{}, *decoys])
    open_, sealed = 0, 0
    for plant, other in zip(plants, records, strict=True):
        found = [difference.name for difference in compare(base, other)]
        open_ += (hit := bool(set(found[:3]) & set(plant.names)))
        blind = [difference.name for difference in compare(base.seal(KEY), other.seal(KEY))]
        sealed += bool(set(blind[:3]) & set(plant.names))
        if not hit:
            print(f"  {' or '.join(plant.names)}: first are {', '.join(found[:3])}", flush=True)
    figures.ratio("planted_difference_top3_ratio", open_, len(plants), 0.9)
    figures.ratio("planted_difference_top3_ratio_sealed", sealed, len(plants))


def record(plant: Plant, decoys: Mapping[str, str]) -> Record:
    """The record of a job that differs from the base in what is planted, and in what does nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "record.json"
        script = [sys.executable, "-m", "evaluation.scripts.train_zoo", *plant.arguments]
        subprocess.run(
            [*plant.under, sys.executable, "-m", "pharoah", "record", "--out", str(file), "--", *script],
            env={**os.environ, **ENVIRONMENT, **decoys, **plant.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        groups = json.loads(file.read_text())["groups"]
    groups["software"] |= {**SOFTWARE, **plant.software}
    groups["hardware"] |= {"driver": "570.86.15", **plant.hardware}
    return Record(groups)
