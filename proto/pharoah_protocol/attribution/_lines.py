"""The lines of a log without what terminals and launchers add to them."""

from __future__ import annotations

import re

from pharoah_system.bounded_reading import MAX_SEARCHED

MAX_RAW = 4 * MAX_SEARCHED
"""Characters of a line with its colours and prefixes."""
TRACEBACK = "Traceback (most recent call last)"
"""Python prints it above the error that ends a process (CPython, Lib/traceback.py)."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]|\][^\x07\x1b]*+(?:\x07|\x1b\\))")
"""Colours and links of a terminal (ECMA-48, control sequences and operating system commands)."""
_PREFIXES = re.compile(
    r"""(?:
        \[[a-z_]*\d+(?:,\d+)?\](?:<std(?:out|err)>)?:?\ ?   # torchrun and torch's own hook, mpirun, horovodrun
      | rank\d+:\ ?
      | \ *\d+:\ ?                                          # srun --label
      | \([^()]{0,200}?\bpid=\d+[^()]{0,60}\)\ ?            # Ray
      | \[pod/[^\]\s]{1,600}\]\ ?                           # kubectl logs --prefix
      | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+Z-]*\]?\ ?(?:std(?:out|err)\ [FP]\ )?   # time stamps
    )++""",
    re.VERBOSE,
)
"""What launchers put before each line, also several of them. The numbers bound the names of an actor and of a pod."""
_WARNING = re.compile(
    r"^[\s|\[-]*WARNING\b|:\d+: [\w.]*Warning: (?!CUDA initialization)|; dlerror: "
    r"|\b(?:[gs]et_mempolicy|mbind): Operation not permitted"
)
"""Lines that are only warnings: of Python's modules logging and warnings, of TensorFlow about a library that it can do
without, and of libnuma in a container. torch explains in a warning why it finds no device, which is more than that."""


def bare(line: str) -> str:
    """The beginning of the line as the program has printed it, without colours and without prefixes of launchers.

    A line may have megabytes, and a search costs a multiple of it: what names a cause stands at its beginning.
    """
    line = line[:MAX_RAW]
    text = _ESCAPES.sub("", line) if "\x1b" in line else line
    prefixes = _PREFIXES.match(text)
    return (text[prefixes.end() :] if prefixes else text)[:MAX_SEARCHED]


def is_warning(text: str) -> bool:
    """Whether a bare line only warns: the program goes on after it."""
    return bool(_WARNING.search(text))
