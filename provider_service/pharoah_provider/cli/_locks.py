"""Locks of the environments of a campaign file, made on the machine of who plans it."""

from __future__ import annotations

import argparse

from pharoah_serving.errors import ProviderError
from pharoah_system.standard_streams import say


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say for which machines environments are locked."""
    group = parser.add_argument_group(
        "locks of environments", "For which machines wheels are chosen where the file has no lock; may be repeated."
    )
    group.add_argument("--python", metavar="VERSION", action="append", help="such as 3.12 (default: this one)")
    group.add_argument("--platform", metavar="NAME", action="append", help="such as linux_aarch64 (default: this one)")
    group.add_argument("--torch", metavar="VERSION", default="", help="that of the nodes (default: this machine's)")


def missing_locks(text: str, arguments: argparse.Namespace) -> str:
    """The locks that a campaign file lacks, as TOML to append to it; empty where it lacks none.

    A file that cannot be read here is for the provider to refuse: its own environments may be known to it alone. Raises
    ProviderError with pip's reason.
    """
    if "environment" not in text:
        return ""
    from pharoah_benchmarks.campaign.plan import PlanError, parse_plan  # here: other campaigns need none of it
    from pharoah_benchmarks.environments import Environment
    from pharoah_benchmarks.environments.lock import LockError
    from pharoah_benchmarks.environments.resolve import resolve

    try:
        wanted = parse_plan(text).without_lock
    except PlanError:
        return ""
    tables = []
    for environment in map(Environment.read, wanted):
        say(f"pharoah-provider: choosing the wheels of {environment.text}")
        pythons = [environment.python] if environment.python else arguments.python or [""]
        try:
            tables += [
                resolve(environment, python=python, platform=platform, torch=arguments.torch).table
                for python in pythons
                for platform in arguments.platform or [""]
            ]
        except LockError as error:
            raise ProviderError(str(error)) from None
    return "".join(f"\n{table}" for table in tables)
