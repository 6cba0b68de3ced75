"""Build environments before a campaign needs them, or list those that are there.

    python -m pharoah_benchmarks.environments build FILE...     # environment files, as on the provider
    python -m pharoah_benchmarks.environments list

A node without a package index gets its environments in this way, while it has one; cells use them offline.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from pharoah_benchmarks.environments._environment import Environment
from pharoah_benchmarks.environments.answer import BuildAnswer
from pharoah_benchmarks.environments.files import EnvironmentFileError, environment_file
from pharoah_benchmarks.environments.store import EnvironmentStore
from pharoah_protocol.own_python import own_environment, own_module


def main() -> int:
    """Returns the exit code: 1 when an environment could not be built."""
    parser = argparse.ArgumentParser(prog="python -m pharoah_benchmarks.environments", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    building = commands.add_parser("build", help="build the environments of these files")
    building.add_argument("files", nargs="+", type=Path, metavar="FILE")
    commands.add_parser("list", help="list the environments that are built")
    arguments = parser.parse_args()
    return _build(arguments.files) if arguments.command == "build" else _list()


def _build(files: list[Path]) -> int:
    failed = 0
    for file in files:
        try:
            group = environment_file(file)
        except EnvironmentFileError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return 2
        for name, environment in group.environments.items():
            answer = _built(environment)
            if answer.reason:
                print(f"{name}: not built: {answer.reason}", file=sys.stderr)  # noqa: T201
                failed += 1
            else:
                print(f"{name}: {answer.python}", flush=True)  # noqa: T201
    return int(failed > 0)


def _built(environment: Environment) -> BuildAnswer:
    """Built in the same way as an agent builds it, so that the agent finds it."""
    command = own_module("pharoah_benchmarks.environments.builder", environment.text)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=own_environment(os.environ))
    try:
        return BuildAnswer.from_json(done.stdout)
    except (ValueError, KeyError, TypeError):
        return BuildAnswer(reason=f"the builder ended with status {done.returncode}")


def _list() -> int:
    for stamp in EnvironmentStore().finished():
        packages = " ".join(f"{name}=={version}" for name, version in stamp.packages.items())
        print(f"{stamp.environment}\n  Python {stamp.python}, installed: {packages}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
