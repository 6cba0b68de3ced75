"""Programs that start another command and change nothing that a dry run shows: `nohup`, `nice`, `numactl`, ..."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pharoah.launchers._launcher import Launcher, launch_of, parse_valued_options, split
from pharoah.launchers._program import Launch

_VALUED = {
    "caffeinate": "t w",
    "chrt": "T P D",
    "command": "",
    "exec": "a",
    "ionice": "c n class classdata",
    "nice": "n adjustment",
    "nohup": "",
    "numactl": "C N m p P i cpunodebind physcpubind membind preferred interleave",
    "setsid": "",
    "stdbuf": "i o e input output error",
    "systemd-run": "p property unit slice uid gid E setenv",
    "taskset": "",
    "time": "f format o output",
    "timeout": "k kill-after s signal",
    "unbuffer": "",
}
"""Program to its options with a value."""
_OPERANDS = {"taskset": 1, "timeout": 1, "chrt": 1}
"""How many words come between the options and the command: a mask, a time, a priority."""


def _launch(words: Sequence[str]) -> Launch:
    name = Path(words[0]).name
    _, command = split(words, parse_valued_options(_VALUED[name]))
    return launch_of(command[_OPERANDS.get(name, 0) :])


WRAPPERS = Launcher(
    "wrappers", "a command with other limits, priorities or outputs", tuple(_VALUED), _launch, uses_path=True
)
