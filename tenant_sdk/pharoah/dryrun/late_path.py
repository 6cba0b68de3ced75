"""The job's PYTHONPATH in the child of a dry run: searched last until the child is in its sandbox, then as in the job.

Otherwise a module of the user's would take the place of one that the child needs, or run where its side effects are
real. Imported before the sandbox is closed: standard library only.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

LATE_PATH = "PHAROAH_DRY_RUN_PATH"
"""Holds the job's PYTHONPATH until it is put into force."""


def with_late_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the child's interpreter starts: PYTHONPATH has another name until later."""
    late = dict(environment)
    if path := late.pop("PYTHONPATH", ""):
        late[LATE_PATH] = path
    return late


def start_code(module: str) -> str:
    """What the job's interpreter runs (`python -c`) to start a module of ours as `__main__`."""
    return (
        "import os, sys\n"
        f"sys.path += filter(None, os.environ.get({LATE_PATH!r}, '').split(os.pathsep))\n"
        "import runpy\n"
        f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)\n"
    )


def search_as_the_job() -> None:
    """Put the job's PYTHONPATH into force, and run the `sitecustomize` that is found there, as `site` would have."""
    path = os.environ.pop(LATE_PATH, "")
    if not path:
        return
    os.environ["PYTHONPATH"] = path
    given = path.split(os.pathsep)
    folders = [os.path.abspath(folder) for folder in given]  # noqa: PTH100 - as the interpreter does
    sys.path[:] = [*folders, *(folder for folder in sys.path if folder not in (*given, *folders))]
    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        with contextlib.suppress(Exception):  # `site` prints what it raises, and goes on
            spec.loader.exec_module(module)
