"""`env [options] [NAME=VALUE ...] command`, of GNU coreutils."""

from __future__ import annotations

import getopt
import shlex
from collections.abc import Sequence

from pharoah._errors import UnknownReason
from pharoah.launchers._launcher import Launcher, launch_of
from pharoah.launchers._program import Launch

_LETTERS = "iu:C:S:v"
_NAMES = ["ignore-environment", "unset=", "chdir=", "split-string=", "debug"]


def _launch(words: Sequence[str]) -> Launch:
    """The command that `env` starts, in the environment that it makes. Raises UnknownReason."""
    try:
        options, rest = getopt.getopt(list(words[1:]), _LETTERS, _NAMES)
    except getopt.GetoptError as error:
        raise UnknownReason(f"cannot dry-run `{' '.join(words[:3])} ...`: env: {error}") from None
    removed, folder, clears, variables = set[str](), None, False, dict[str, str]()
    for option, value in options:
        match option:
            case "-u" | "--unset":
                removed.add(value)
            case "-C" | "--chdir":
                folder = value
            case "-i" | "--ignore-environment":
                clears = True
            case "-S" | "--split-string":
                return _launch([words[0], *shlex.split(value), *rest])
    if rest[:1] == ["-"]:
        clears, rest = True, rest[1:]
    while rest and "=" in rest[0]:
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    return launch_of(rest).within(variables, removed=frozenset(removed), clears_environment=clears, folder=folder)


ENV = Launcher("env", "a command in another environment", ("env",), _launch, uses_path=True)
