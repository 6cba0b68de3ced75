"""A module of ours as a child that ends with its parent from its first moment on, also while it still imports.

    python -m pharoah_system.with_parent PARENT-PID MODULE ARGUMENTS

A module that calls `end_with_parent` itself does so once it runs; torch takes seconds to import before that.
"""

from __future__ import annotations

import runpy
import sys

from pharoah_system.parent_process import end_with_parent

WITH_PARENT = "pharoah_system.with_parent"
"""This module, also where it is `__main__`."""


def main() -> None:
    """Become the module in the arguments."""
    own_file, parent, module, *arguments = sys.argv
    end_with_parent(int(parent))
    sys.argv = [own_file, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
