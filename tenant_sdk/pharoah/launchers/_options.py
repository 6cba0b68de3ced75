"""Options on a command line: those of Python's interpreter, and those that a launcher is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

INTERPRETER_OPTIONS = re.compile(r"-([BEIOPRSbdiqsuvx]*)(?:([WXm])(.*))?", re.DOTALL)
"""Options of the interpreter (`python --help`): several letters may share one dash, the last one may have a value."""

_MODULE_FLAGS = {"-m", "--module"}
"""Flags of launchers after which the program comes, a module."""


def skips_site(command: Sequence[str]) -> bool:
    """Whether a command line starts Python without its module `site` (`-S`), also one that cannot be dry-run."""
    words = iter(command)
    for word in words:
        if "python" in Path(word).name:
            break
    for word in words:
        if len(word) < 2 or not (match := INTERPRETER_OPTIONS.fullmatch(word)):
            return False
        letters, last, value = match.groups()
        if "S" in letters:
            return True
        if last and not value:
            next(words, None)  # the option's value
    return False


def before_program(words: Sequence[str]) -> Sequence[str]:
    """The options of a launcher without the program that it starts: what comes after it belongs to the program.

    The program is the first word that is neither an option nor the value of one; an option has one value at most. A
    word that ends in `.py` is a program also after an option, because that may be a flag.
    """
    after_option = False
    for at, word in enumerate(words):
        if word == "--" or word.endswith(".py"):
            return words[:at]
        if word.startswith("-"):
            after_option = "=" not in word and word not in _MODULE_FLAGS
        elif after_option:
            after_option = False
        else:
            return words[:at]
    return words


def value_of(words: Sequence[str], *names: str) -> str | None:
    """The last value that options give one of these names, as `--name value` or `--name=value`; None without it.

    Underscores in the names of options count as hyphens.
    """
    found = None
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            found = value if equals else next(iter(words[at + 1 : at + 2]), "")
    return found
