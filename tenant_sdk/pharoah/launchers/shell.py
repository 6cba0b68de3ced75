"""`bash train.sh`, `sh -c "..."`, `make train`: commands that a shell finds out only when it runs them.

A dry run runs the shell itself, in its sandbox, and follows the Python programs that it starts
(`pharoah.dryrun.shell_commands`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pharoah.launchers._launcher import Launcher
from pharoah.launchers._program import Launch, Program

_NAME = "shell"


def _launch(words: Sequence[str]) -> Launch:
    """Our own interpreter starts the shell: which one trains is known only from the commands of the shell."""
    return Launch(sys.executable, Program(tuple(words), _NAME))


SHELL = Launcher(
    _NAME,
    "commands of a shell script or a makefile: a dry run follows the Python programs among them",
    ("bash", "sh", "dash", "zsh", "ksh", "make"),
    _launch,
    starts_commands=True,
    uses_path=True,
)
