"""Interrupts the demo at moments of its whole run time, and counts the processes that are left.

Half of the interrupts are a Ctrl-C: SIGINT to every process of the foreground group at once. The others are SIGTERM to
the process of the demo alone, as a supervisor sends it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

from evaluation.figures import Figures
from evaluation.pages import ROOT
from tests.harness.processes import command_line, descendants, kill

FIRST_SECONDS, LAST_SECONDS, QUICK_LAST_SECONDS = 0.2, 280.0, 30.0
"""The first and the last moment. A demo takes about 300 s."""
END_SECONDS = 5.0
"""How long everything may take to end after the interrupt."""
MOMENTS, QUICK_MOMENTS = 20, 4


def run(arguments: argparse.Namespace) -> int:
    moments = _moments(QUICK_MOMENTS, QUICK_LAST_SECONDS) if arguments.quick else _moments(MOMENTS, LAST_SECONDS)
    figures, left, longest = Figures("interrupt"), 0, 0.0
    for number, seconds in enumerate(moments):
        found, took = _interrupt(seconds, to_group=number % 2 == 0)
        left, longest = left + len(found), max(longest, took)
        print(f"  after {seconds:6.1f} s: {took:.1f} s to end, {len(found)} processes left {found or ''}", flush=True)
    figures.add("interrupts", len(moments))
    figures.add("longest_end_seconds", longest)
    figures.add("processes_left", left, "0", left == 0)
    return figures.finish(arguments)


def _moments(number: int, last_seconds: float) -> list[float]:
    """Moments with a constant ratio between neighbours: most of the starts and ends of processes come early."""
    ratio = (last_seconds / FIRST_SECONDS) ** (1 / (number - 1))
    return [FIRST_SECONDS * ratio**i for i in range(number)]


def _interrupt(seconds: float, to_group: bool) -> tuple[list[str], float]:
    """Command lines of what is left of a demo that was interrupted after `seconds`, and how long its end took."""
    before = set(descendants(os.getpid()))
    command = [sys.executable, "-m", "evaluation", "demo"]
    demo = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        demo.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    interrupted = time.monotonic()
    if demo.poll() is None:
        os.killpg(demo.pid, signal.SIGINT) if to_group else demo.terminate()
    while (left := _left(before)) and time.monotonic() - interrupted < END_SECONDS:
        demo.poll()
        time.sleep(0.05)
    took = time.monotonic() - interrupted
    while pids := _left(before):
        kill(pids)
        time.sleep(0.05)
    demo.wait()
    return list(left.values()), took


def _left(before: set[int]) -> dict[int, str]:
    """Processes that have come since, with their command lines; orphans become children of this process."""
    lines = {pid: command_line(pid) for pid in set(descendants(os.getpid())) - before}
    return {pid: line for pid, line in lines.items() if line}
