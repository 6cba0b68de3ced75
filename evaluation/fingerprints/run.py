"""`python -m evaluation capture`: are archetypes right, is a dry run the real step, and what does capture cost?

Models of `evaluation/models/zoo.py`, tiny and without weights. Every measurement runs in a process of its own. Timings
are ratios of steps that are measured side by side in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from evaluation.figures import Figures, Peak, timed
from evaluation.fingerprints import adversarial_scripts
from evaluation.models.zoo import FAMILIES, VARIATIONS
from pharoah.dryrun import dry_run
from pharoah_archetypes import parse

Measured = TypeVar("Measured")
OVERHEAD = ("gpt2", "llama", "bert", "vit", "resnet", "dlrm", "mlp")
ACTIVE = ("gpt2", "resnet", "mlp")
TOOLS = ("pharoah", "ExecutionTraceObserver", "FlopCounterMode", "CommDebugMode", "torch.profiler")
"""Names of the tools that `evaluation.fingerprints.worker` compares."""
NAMES = [family.name for family in FAMILIES]
CLASS_OF = {family.name: family.of_class for family in FAMILIES}
IMPORT = """
import json, os, sys, threading, time
import torch
before, count = set(sys.modules), lambda: sum(os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}"))
threads, sockets, began = threading.active_count(), count(), time.process_time()
import pharoah
imported = time.process_time() - began
pharoah.register  # loads what it needs
print(json.dumps([imported, time.process_time() - began, threading.active_count() - threads, count() - sockets,
    "grpc" in sys.modules]))
"""


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("capture")
    names = NAMES if not arguments.quick else ["llama", "qwen3", "gpt2", "resnet", "mlp", "dlrm"]
    prints: dict[str, dict[str, dict[str, Any]]] = {}
    timed("archetypes of dry and real steps", lambda: archetypes(figures, names, prints))
    timed("compiled", lambda: compiled(figures, names[:: 1 if not arguments.quick else 3], prints))
    timed("compilation while captured", lambda: frames(figures))
    timed("a model of 6.7 billion parameters", lambda: large(figures))
    timed("cost", lambda: cost(figures, 5 if not arguments.quick else 2, random.Random(arguments.seed)))
    timed("adversarial scripts", lambda: adversarial_scripts.measure(figures))
    timed("import", lambda: _import(figures))
    return figures.finish(arguments)


def archetypes(figures: Figures, names: list[str], prints: dict[str, dict[str, dict[str, Any]]]) -> None:
    equal = dry_equals_real = both = 0
    by_class: dict[str, dict[str, str]] = {}
    for name, (dry, real) in _beside_each_other(names, lambda name: (_worker("fake", name), _worker("real", name))):
        prints[name] = dry
        for variation, seen in dry.items():
            if not isinstance(seen, dict):
                print(f"  {name} {variation}: dry: {seen}", flush=True)
            by_class.setdefault(CLASS_OF[name], {})[f"{name} {variation}"] = _archetype(seen)
        for variation, seen in real.items():
            both += 1
            same = isinstance(seen, dict) and seen == dry[variation]  # the whole fingerprint, sizes and all
            dry_equals_real += same
            if not same:
                print(f"  {name} {variation}: {_unlike(dry[variation], seen)}", flush=True)
    pairs = equal = 0
    for members in by_class.values():
        named = list(members.items())
        for (_, left), (_, right) in combinations(named, 2):
            pairs += 1
            equal += left == right != ""
        odd = {member for member, archetype in named if archetype != _commonest(members)}
        for member in sorted(odd):
            name, _, variation = member.partition(" ")
            print(f"  differs within its class: {member}: {_shown(prints[name][variation])}", flush=True)
    collisions = _collisions(by_class)
    figures.add("classes", len(by_class), ">= 16 unless --quick", len(by_class) >= 16 or len(names) < len(NAMES))
    figures.add("variations", len(VARIATIONS), ">= 8", len(VARIATIONS) >= 8)
    figures.ratio("invariance_ratio", equal, pairs, 1.0)
    figures.add("collisions", collisions, "0", collisions == 0)
    figures.ratio("dry_equals_real_ratio", dry_equals_real, both, 1.0)
    figures.details["grammars"] = {name: _shown(prints[name]["base"]) for name in names}


def _collisions(by_class: dict[str, dict[str, str]]) -> int:
    """Pairs of a member of one class and a member of another with one archetype."""
    found = 0
    for (one, left), (other, right) in combinations(by_class.items(), 2):
        same = [(a, b) for a, x in left.items() for b, y in right.items() if x == y != ""]
        found += len(same)
        if same:
            print(f"  collision of {one} and {other}: {same[0]}", flush=True)
    return found


def compiled(figures: Figures, names: list[str], prints: dict[str, dict[str, dict[str, Any]]]) -> None:
    equal = 0
    for name, seen in _beside_each_other(names, lambda name: _worker("compiled", name)):
        dry = prints[name]["base"]
        was_compiled = isinstance(seen, dict) and seen["features"].get("compiled") == "yes"
        same = was_compiled and isinstance(dry, dict) and seen["compute"] == dry["compute"]
        equal += same
        if not same:
            print(f"  {name} compiled differs: {_shown(seen)} / eager {_shown(dry)}", flush=True)
    figures.ratio("compiled_equals_eager_ratio", equal, len(names), 0.9)


def frames(figures: Figures) -> None:
    same = True
    for event in ("first-call", "new-shape"):
        for cache in ("cold", "warm"):
            with tempfile.TemporaryDirectory() as folder:
                seen = []
                for watched in ("plain", "watched"):
                    cache_folder = folder if cache == "warm" else f"{folder}/{watched}"
                    environ = {"TORCHINDUCTOR_CACHE_DIR": cache_folder}
                    if cache == "warm":
                        _worker("frames", "mlp", "plain", event, environ=environ)
                    seen.append(_worker("frames", "mlp", watched, event, environ=environ))
                if seen[0] != seen[1]:
                    print(f"  {event}, {cache} cache: {seen[0]} became {seen[1]}", flush=True)
                same &= seen[0] == seen[1] and bool(seen[0]["frames"])
    figures.add("compile_preserved", same, "true", same)


def large(figures: Figures) -> None:
    script = Path(__file__).parents[1] / "scripts" / "train_7b.py"
    seconds, peaks = [], []
    for _ in range(5):
        with Peak() as peak:
            began = time.monotonic()
            fingerprint = dry_run([sys.executable, str(script)], 120.0).fingerprint
            seconds.append(time.monotonic() - began)
        peaks.append(peak.bytes)
    figures.details["parameters"] = fingerprint.sizes["parameters"] // 4
    shown = f"[{min(seconds):.2f}, {max(seconds):.2f}]"
    figures.add("dry_run_7b_seconds", median(seconds), "<= 10", median(seconds) <= 10, shown)
    figures.add("dry_run_7b_rss_bytes", max(peaks), "<= 500e6", max(peaks) <= 500e6)


def cost(figures: Figures, rounds: int, chance: random.Random) -> None:
    extra: dict[str, list[float]] = {name: [] for name in OVERHEAD}
    for _ in range(rounds):
        for name in chance.sample(OVERHEAD, len(OVERHEAD)):
            seen = _worker("overhead", name)
            extra[name].append(1 + seen["extra"] / (1000 * seen["step"]))
    worst = max(OVERHEAD, key=lambda name: median(extra[name]))
    for name in OVERHEAD:
        shown = f"[{min(extra[name]):.5f}, {max(extra[name]):.5f}]"
        figures.add(f"overhead_1000_steps_ratio_{name}", median(extra[name]), interval=shown)
    ratio = median(extra[worst])
    figures.add("overhead_1000_steps_ratio", ratio, "<= 1.001", ratio <= 1.001, f"worst: {worst}")
    nanoseconds = _worker("detached", "mlp")
    figures.add("overhead_after_detach_ns_per_step", nanoseconds, "<= 2000", nanoseconds <= 2000)
    ours, others, rows = [], [], []
    for name in ACTIVE:
        ratios = _worker("active", name)
        rows.append((name, *(f"{ratios[tool]:.2f}" if tool in ratios else "fails" for tool in TOOLS)))
        figures.details[f"active_{name}"] = ratios
        ours.append(ratios["pharoah"])
        others.append(min(ratio for tool, ratio in ratios.items() if tool != "pharoah"))
    lowest = all(own < other for own, other in zip(ours, others, strict=True))
    figures.add("overhead_active_ratio", max(ours), "lowest of all", lowest, f"others from {min(others):.2f}")
    caption = "One captured step over a plain one, from switching a tool on to having its result:"
    figures.table(caption, ("model", *TOOLS), rows)


def _import(figures: Figures) -> None:
    seen = [json.loads(subprocess.check_output([sys.executable, "-c", IMPORT])) for _ in range(5)]
    seconds = median(row[0] for row in seen)
    figures.add("import_cpu_seconds", seconds, "<= 0.03", seconds <= 0.03)
    figures.add("import_and_load_cpu_seconds", median(row[1] for row in seen))
    figures.add("import_threads", seen[0][2], "0", seen[0][2] == 0)
    figures.add("import_sockets", seen[0][3], "0", seen[0][3] == 0)
    figures.add("import_grpc", bool(seen[0][4]), "no", not seen[0][4])


def _beside_each_other(names: list[str], measure: Callable[[str], Measured]) -> Iterator[tuple[str, Measured]]:
    """`measure` of each name, on as many names at a time as there are cores. Nothing in it may be a timing."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from zip(names, pool.map(measure, names), strict=True)


def _worker(what: str, family: str, *rest: str, environ: dict[str, str] | None = None) -> Any:
    command = [sys.executable, "-m", "evaluation.fingerprints.worker", what, family, *rest]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", **(environ or {})}
    )
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise SystemExit(f"{what} {family} failed: {done.stderr.strip()[-800:]}") from None


def _archetype(seen: Any) -> str:
    return str(seen["archetype"]) if isinstance(seen, dict) else ""


def _unlike(dry: Any, real: Any) -> str:
    if not isinstance(dry, dict) or not isinstance(real, dict):
        return f"dry {_shown(dry)}, real {_shown(real)}"
    return "; ".join(f"{field}: dry {dry[field]}, real {real[field]}" for field in dry if dry[field] != real[field])


def _commonest(members: dict[str, str]) -> str:
    values = list(members.values())
    return max(set(values), key=values.count)


def _shown(seen: Any) -> str:
    return " | ".join(parse(seen["grammar"]).text.splitlines()) if isinstance(seen, dict) else str(seen)
