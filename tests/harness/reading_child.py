"""Reads files in a process of its own: `python -m tests.harness.reading_child FOLDER`.

Each line of standard input names a reader and a file. The answer is a line of JSON: processor seconds, megabytes above
what the process had before, how it ended, and the events of `sys.audit` that the good file of this reader has not
caused.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tests.harness.readers import READERS, Reader, RefusedMessage

ROOT = Path(__file__).parents[2]
IGNORED = {
    "builtins.id",
    "array.__new__",
    "sys._getframe",
    "object.__getattr__",
    "object.__setattr__",
    "object.__delattr__",
}
"""Events that reach nothing outside: of numpy, of named tuples, and of classes that are made."""
MAX_SECONDS = 60.0
"""After this a file counts as one that never ends."""
PREPARE_SECONDS = 300.0
"""How long a reader may take to be imported and to read its good file, on a busy machine."""


@dataclass(frozen=True)
class Reading:
    """What came of one file."""

    seconds: float
    """Processor time."""
    mib: float
    """The most memory beyond what the process had before."""
    error: str = ""
    """The class and the text of an error; empty for a file that was read."""
    internal: bool = False
    """Whether the error is none of Pharoah's own: a user would see a traceback, or `internal error`."""
    events: tuple[str, ...] = ()
    """What a good file has not caused."""


class Order(NamedTuple):
    """A file to read."""

    reader: str
    file: Path
    what: str = ""
    """What is hostile about it."""


def read_apart(
    folder: Path, orders: Sequence[Order], environment: Mapping[str, str] | None = None
) -> Iterator[Reading]:
    """Read files one after another in a child, which is started again when one of them ends it or does not end."""
    left = list(orders)
    command = [sys.executable, "-m", "tests.harness.reading_child", str(folder)]
    variables = {**os.environ, **(environment or {})}
    while left:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=ROOT, env=variables
        ) as child:
            assert child.stdin and child.stdout
            answers = _Answers(child.stdout.fileno())
            try:
                while left:
                    order = left.pop(0)
                    child.stdin.write(json.dumps([order.reader, str(order.file)]).encode() + b"\n")
                    assert answers.line(PREPARE_SECONDS), f"{order.reader}: its good file is not read"
                    if not (line := answers.line(MAX_SECONDS)):
                        yield Reading(MAX_SECONDS, 0.0, "the process ended, or did not end", internal=True)
                        break
                    found: dict[str, Any] = json.loads(line)
                    yield Reading(**{**found, "events": tuple(found["events"])})
            finally:
                child.kill()


class _Answers:
    """Lines of a child."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._read = descriptor, b""

    def line(self, seconds: float) -> bytes:
        """The next line; empty when the child has ended, or says nothing for so long."""
        while b"\n" not in self._read:
            ready, _, _ = select.select([self._descriptor], [], [], seconds)
            if not ready or not (content := os.read(self._descriptor, 1 << 16)):
                return b""
            self._read += content
        line, _, self._read = self._read.partition(b"\n")
        return line


class Events:
    """An audit hook cannot be removed, so that this one is switched."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self.seen: set[str] | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: Sequence[Any]) -> None:
        if self.seen is None or event in IGNORED:
            return
        shown = (
            [event, *(self._shown(one) for one in arguments[:2])] if event != "import" else [event, str(arguments[0])]
        )
        self.seen.add(" ".join(shown)[:300])

    def _shown(self, value: object) -> str:
        if isinstance(value, (str, bytes, os.PathLike)):
            text = os.fsdecode(value)
            return "FILE" if text.startswith(self._folder) else text
        return type(value).__name__

    @contextmanager
    def noted(self) -> Iterator[set[str]]:
        found: set[str] = set()
        self.seen = found
        try:
            yield found
        finally:
            self.seen = None


class _Prepared(NamedTuple):
    """A reader that has read its good file."""

    reader: Reader
    known: set[str]
    """The events that this has caused."""


def main() -> None:
    folder = Path(sys.argv[1])
    events, prepared = Events(folder), dict[str, _Prepared]()
    for line in sys.stdin:
        name, file = json.loads(line)
        if name not in prepared:
            prepared[name] = _prepare(READERS[name](), folder / "good" / name, events)
        reader, known = prepared[name]
        _say("ready")
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
        before, began = _kib("VmRSS"), time.process_time()
        with events.noted() as seen:
            outcome = _outcome(reader.read, Path(file))
        seconds, mib = time.process_time() - began, max(0, _kib("VmHWM") - before) / 1024
        _say(json.dumps({"seconds": seconds, "mib": mib, "events": sorted(seen - known), **outcome}))


def _prepare(reader: Reader, folder: Path, events: Events) -> _Prepared:
    """Read the good file twice: what is imported and kept at the first time is no part of a reading."""
    folder.mkdir(parents=True, exist_ok=True)
    good, known = folder / reader.file, set[str]()
    reader.good(good)
    for _ in range(2):
        with events.noted() as seen:
            outcome = _outcome(reader.read, good)
        known |= seen
        assert bool(outcome["error"]) is reader.is_refused, outcome
    return _Prepared(reader, known)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _outcome(read: Any, path: Path) -> dict[str, Any]:
    try:
        read(path)
    except BaseException as error:
        of = type(error)
        own = of.__module__.startswith("pharoah") or isinstance(error, (OSError, RefusedMessage))
        return {"error": f"{of.__name__}: {error}"[:300], "internal": not own}
    return {"error": "", "internal": False}


def _kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
