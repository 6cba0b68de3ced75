"""A process that does real training runs, one after the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any


class Worker:
    """Use as a context manager; the process ends with it."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "evaluation.models.training_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **environment},
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, what: str, arguments: Sequence[str], **options: Any) -> Any:
        """The result of an order of `evaluation.models.training_child`; a text where the run failed."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({"what": what, "arguments": arguments, **options}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())
