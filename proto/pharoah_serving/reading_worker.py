"""A reading process: `python -m pharoah_serving.reading_worker TABLE SECONDS`.

TABLE is a module with READERS: the name of each function to its place, `module:function`. One message may take SECONDS
of processor time; then the kernel ends the process, also inside a function that is written in C.

The process reads frames from its standard input and answers each on its standard output, until that is closed. Nothing
that came from a stranger is unpickled on either side: a frame is a number of parts, each of them bytes after their
length.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import BinaryIO

from pharoah_system.text import sanitize_text

LENGTH = struct.Struct(">I")
NICE = 10
"""The event loop comes first on a machine that has few cores."""
MAX_MEMORY_BYTES = 1 << 30
"""Address space, most of which is that of libraries; a message has at most 4 MiB, and unfolds to ten times that."""
MAX_REASON_LENGTH = 300
"""Characters of what is wrong with a message."""
DONE, REFUSED = b"done", b"refused"
"""Begins an answer: the parts that the function gave, or what is wrong with the message."""

Reader = Callable[..., Sequence[bytes]]
"""From the parts of a message to those of the answer. Raises an exception for what it does not accept."""


def frame(parts: Sequence[bytes]) -> bytes:
    """Parts as they are sent."""
    pieces = [LENGTH.pack(len(parts))]
    for part in parts:
        pieces += (LENGTH.pack(len(part)), part)
    return b"".join(pieces)


def _receive(source: BinaryIO) -> list[bytes]:
    """The parts of the next frame; none when there is no other one."""
    count = source.read(LENGTH.size)
    if len(count) < LENGTH.size:
        return []
    return [source.read(LENGTH.unpack(source.read(LENGTH.size))[0]) for _ in range(LENGTH.unpack(count)[0])]


def limit_own_process() -> None:
    """Low priority, little memory, and no core file."""
    os.nice(NICE)
    for limit, most in ((resource.RLIMIT_AS, MAX_MEMORY_BYTES), (resource.RLIMIT_CORE, 0)):
        _, hard = resource.getrlimit(limit)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (bound, bound))


def _answer(read: Reader, parts: Sequence[bytes], most_seconds: float) -> list[bytes]:
    """The answer to one message, with the processor seconds that it took as its second part."""
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, most_seconds)  # nobody handles the signal, so it ends the process
    try:
        status, answer = DONE, list(read(*parts))
    except MemoryError:
        status, answer = REFUSED, [b"reading it takes too much memory"]
    except Exception as error:  # noqa: BLE001 - whatever a message makes of a reader, the message is refused
        status, answer = REFUSED, [sanitize_text(str(error), MAX_REASON_LENGTH).encode()]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return [status, repr(time.process_time() - began).encode(), *answer]


def main() -> None:
    """Read and answer until nobody asks any more."""
    source, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints is no answer
    sys.dont_write_bytecode = True
    limit_own_process()
    table, most_seconds = sys.argv[1:]
    places: dict[str, str] = import_module(table).READERS
    known: dict[str, Reader] = {}
    while message := _receive(source):
        name = message[0].decode()
        if name not in known:  # what a function imports is not the message's fault
            module, _, function = places[name].partition(":")
            known[name] = getattr(import_module(module), function)
        answers.write(frame(_answer(known[name], message[1:], float(most_seconds))))
        answers.flush()


if __name__ == "__main__":
    main()
