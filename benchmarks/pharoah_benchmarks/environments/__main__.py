"""Build environments before a campaign needs them, list those that are there, or delete what nobody uses.

    python -m pharoah_benchmarks.environments lock FILE...      # print the locks that environment files lack
    python -m pharoah_benchmarks.environments build FILE...     # environment files with locks, as on the provider
    python -m pharoah_benchmarks.environments list
    python -m pharoah_benchmarks.environments prune --unused-days 30

A node without a package index gets its environments in this way, while it has one; cells use them offline.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
from pathlib import Path

from pharoah_benchmarks.environments._environment import Environment
from pharoah_benchmarks.environments.answer import BuildAnswer, BuildError
from pharoah_benchmarks.environments.files import EnvironmentFileError, environment_file
from pharoah_benchmarks.environments.lock import LockError, locks_text
from pharoah_benchmarks.environments.resolve import resolve
from pharoah_benchmarks.environments.store import EnvironmentStore
from pharoah_system.own_python import own_environment, own_module
from pharoah_system.standard_streams import say, show

_DAY_SECONDS = 86_400.0


def main() -> int:
    """Returns the exit code: 1 when an environment could not be built or deleted."""
    parser = argparse.ArgumentParser(prog="python -m pharoah_benchmarks.environments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    locking = commands.add_parser("lock", help="print the locks that these files lack, to append to them")
    locking.add_argument("files", nargs="+", type=Path, metavar="FILE")
    locking.add_argument("--torch", default="", metavar="VERSION", help="that of the nodes (default: the one here)")
    building = commands.add_parser("build", help="build the environments of these files")
    building.add_argument("files", nargs="+", type=Path, metavar="FILE")
    commands.add_parser("list", help="list the environments that are built")
    pruning = commands.add_parser("prune", help="delete the environments that nobody has used in a while")
    pruning.add_argument("--unused-days", type=_days, required=True, metavar="N")
    arguments = parser.parse_args()
    if arguments.command == "build":
        return _build(arguments.files)
    if arguments.command == "lock":
        return _lock(arguments.files, arguments.torch)
    return _prune(arguments.unused_days) if arguments.command == "prune" else _list()


def _days(text: str) -> float:
    """At least one. Raises ArgumentTypeError."""
    try:
        days = float(text)
    except ValueError:
        days = 0.0
    if not 1 <= days < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 1")
    return days


def _build(files: list[Path]) -> int:
    failed = 0
    for file in files:
        try:
            group = environment_file(file)
        except EnvironmentFileError as error:
            say(str(error))
            return 2
        for name, environment in group.environments.items():
            answer = _build_all(environment, locks_text(group.locks.get(environment.text, [])))
            if answer.reason:
                say(f"{name}: not built: {answer.reason}")
                failed += 1
            else:
                show(f"{name}: {answer.python}", flush=True)
    return int(failed > 0)


def _lock(files: list[Path], torch: str) -> int:
    """Print the locks that the environments of files lack, for this kind of machine."""
    failed = 0
    for file in files:
        try:
            group = environment_file(file)
        except EnvironmentFileError as error:
            say(str(error))
            return 2
        for environment in group.environments.values():
            if environment.packages and environment.text not in group.locks:
                try:
                    show(f"\n{resolve(environment, torch=torch).table}", end="", flush=True)
                except LockError as error:
                    say(str(error))
                    failed += 1
    return int(failed > 0)


def _build_all(environment: Environment, locks: str) -> BuildAnswer:
    """Built in the same way as an agent builds it, so that the agent finds it."""
    command = own_module("pharoah_benchmarks.environments.builder", environment.text, locks)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=own_environment(os.environ))
    try:
        return BuildAnswer.from_json(done.stdout)
    except (ValueError, KeyError, TypeError):
        return BuildAnswer(reason=f"the builder ended with status {done.returncode}")


def _list() -> int:
    for stamp in EnvironmentStore().list_finished():
        packages = " ".join(f"{name}=={version}" for name, version in stamp.packages.items())
        show(f"{stamp.environment}\n  Python {stamp.python}, installed: {packages}")
    return 0


def _prune(unused_days: float) -> int:
    try:
        for name in EnvironmentStore().prune(unused_days * _DAY_SECONDS):
            show(f"deleted: {name}")
    except BuildError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
