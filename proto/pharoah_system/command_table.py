"""Commands of a command line, each in a module of its own that is loaded when it is run.

A command that asks one question would otherwise wait for what all others import, which is seconds of processor time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command, without its module."""

    module: str
    """In the package of the command line; it has `add_parser(commands)`."""
    help: str
    """As the module gives it to argparse; a test compares both."""


def find_command(words: Sequence[str]) -> str:
    """The command that a command line names; empty where an option or nothing comes first."""
    return words[0] if words and not words[0].startswith("-") else ""


def add_commands(commands: Any, table: Mapping[str, Command], package: str, chosen: str) -> None:
    """Add all commands of a table to argparse's; options and help page of the chosen one alone."""
    for name, command in table.items():
        if name == chosen:
            import_module(f"{package}.{command.module}").add_parser(commands)
        else:
            commands.add_parser(name, help=command.help, add_help=False)
