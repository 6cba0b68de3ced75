"""Put on PYTHONPATH by `pharoah run`. A sitecustomize the environment already had runs after this one."""

# mypy: ignore-errors
# No annotations: importing typing would be felt by every process of a job.

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _wait_for_torch():
    from pharoah_finder import Finder

    sys.meta_path.insert(0, Finder(_watch_this_process))


def _watch_this_process():
    from pharoah import _flight_responder, _session
    from pharoah.capture import hooks

    hooks.watch_optimizers(_session.join_from_hook)
    _flight_responder.start_responder_from_hook()


def _run_the_other_sitecustomize():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("PHAROAH_SIDECAR"):
    _wait_for_torch()
_run_the_other_sitecustomize()
