"""Put on PYTHONPATH by `pharoah run`: waits for torch's optimizers to be imported, then watches them.

Costs nothing in processes that never import torch. A sitecustomize the environment already had runs first.
"""

# mypy: ignore-errors
# No annotations: importing typing would be felt by every process of a job.

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_TARGET = "torch.optim.optimizer"


class _Finder:
    """Meta path finder that adds one step after the import of torch.optim.optimizer."""

    def find_spec(self, name, path=None, target=None):
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                from pharoah import _hooks, _session

                _hooks.watch_optimizers(_session.join_from_hook)
            except Exception:
                pass  # the job matters more than being watched

        spec.loader.exec_module = exec_module
        return spec


def _run_the_other_sitecustomize():
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("PHAROAH_COURIER"):
    sys.meta_path.insert(0, _Finder())
_run_the_other_sitecustomize()
