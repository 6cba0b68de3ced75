"""A module of ours in a process that is no child of the one that has started it.

    python -m pharoah._detached MODULE ARGUMENTS

This process ends as soon as it has forked, and the module runs in the fork. The fork happens here, and not in the job:
a fork of the job would copy the state of its libraries, and would have none of its threads.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    """Become the module in the arguments, in another process."""
    own_file, module, *arguments = sys.argv
    if os.fork():
        os._exit(0)
    sys.argv = [own_file, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
