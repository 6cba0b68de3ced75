"""A command loads what it uses: asking a question must not take seconds of imports."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest

from pharoah.cli import commands
from pharoah_provider import cli
from pharoah_provider.listings import LISTINGS
from pharoah_system.command_table import Command

HEAVY = ("scipy.stats", "duckdb", "pandas", "pyarrow", "matplotlib", "torch", "lifelines", "rich")
"""Each takes from 0.1 s to seconds, and no question needs one before it is asked."""
QUESTIONS = {
    "campaign": ["status"], "learn": [], "forget": ["node", "n1"], "revoke": ["1"], "reinstate": ["1"], "rollback": [],
    "admit": ["n1"], "audit-bundle": ["1", "--out", "FILE"], "return-node": ["n1"], "drain-commands": ["slurm"],
    "draw": ["table", "--out", "FILE.svg"],
}  # fmt: skip
"""Commands that ask the provider, each with words that are enough; listings do, too."""
LOCAL = {"serve", "init", "key", "certificate", "token", "confirm-time", "move", "registries", "listings", "archetypes",
         "backfill"}  # fmt: skip
ASK = """
import sys
from pharoah_provider.cli import main
for words in {questions}:
    main([*words, "--endpoint", "unix:/nowhere/provider.sock", "--token-file", "/nowhere/token"])
    loaded = [name for name in {heavy} if name in sys.modules]
    assert not loaded, (words, loaded)
print("all of them")
"""


def test_each_command_is_said_to_ask_or_not() -> None:
    assert QUESTIONS.keys() | LOCAL == cli.COMMANDS.keys()


def test_a_question_loads_nothing_heavy() -> None:
    questions = [[name, *words] for name, words in QUESTIONS.items()]
    questions += [[listing] for listing in LISTINGS.entries] + [["table", "show", "1"]]
    code = ASK.format(questions=questions, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd="/")
    assert done.stdout == "all of them\n", done.stderr[-2000:]


def helps(parser: argparse.ArgumentParser) -> dict[str, str | None]:
    """The help of each command of a parser."""
    (one,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {choice.dest: choice.help for choice in one._choices_actions}


@pytest.mark.parametrize(
    ("table", "parser_of"),
    [(cli.COMMANDS, cli._parser), (commands.COMMANDS, commands._parser)],
    ids=["provider", "tenant"],
)
def test_the_table_of_commands_says_what_their_modules_say(
    table: Mapping[str, Command], parser_of: Callable[[Sequence[str]], argparse.ArgumentParser]
) -> None:
    for name, command in table.items():
        assert helps(parser_of([name]))[name] == command.help, name


def test_one_listing_is_found_without_the_others() -> None:
    for listing in LISTINGS:
        assert LISTINGS.without_others(listing.name) is listing
    assert LISTINGS.without_others("none-such") is None
