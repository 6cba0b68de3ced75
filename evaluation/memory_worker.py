"""Real training runs under a memory limit: `python -m evaluation.memory_worker`, one order a line on stdin.

An order is `{"arguments": ["gpt2", "--width", "256"], "limit": bytes or null}`; the answer says whether the run came to
its end and by how many bytes the process's data segment grew at most. Each run is a fork of this process, which has
imported everything and computed nothing; a limit counts from there.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from evaluation.train_zoo import add_options, family_named, train
from evaluation.zoo import BASE
from pharoah.profile import data_segment


class Watch(TorchDispatchMode):
    """The largest data segment after any operator."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.most = max(self.most, data_segment())
        return result


def run(arguments: argparse.Namespace, limit: int | None) -> dict[str, Any]:
    """One run, in this process."""
    began = data_segment()
    if limit is None:
        with Watch() as watch:
            train(arguments)
        return {"ended": True, "most": watch.most - began}
    resource.setrlimit(resource.RLIMIT_DATA, (began + limit, began + limit))
    train(arguments)
    return {"ended": True, "most": None}


def in_fork(arguments: argparse.Namespace, limit: int | None) -> dict[str, Any]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(write_end, json.dumps(run(arguments, limit)).encode())
        finally:
            os._exit(1)
    os.close(write_end)
    with os.fdopen(read_end) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return json.loads(said) if said else {"ended": False, "most": None}


def main() -> None:
    import torch._dynamo  # every optimizer does, at its first step
    import transformers  # noqa: F401

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    add_options(parser)
    warmed: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        arguments = parser.parse_args(order["arguments"])
        if arguments.family not in warmed:  # what a family imports is imported once
            family_named(arguments.family).build(BASE)
            warmed.add(arguments.family)
        print(json.dumps(in_fork(arguments, order["limit"])), flush=True)


if __name__ == "__main__":
    main()
