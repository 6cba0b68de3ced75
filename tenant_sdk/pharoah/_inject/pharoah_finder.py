"""Waits for the import of torch's optimizers, then watches them. Costs nothing in processes that never import torch."""

# mypy: ignore-errors
# No annotations: importing typing would be felt by every process of a job.

import importlib.util
import sys

_TARGET = "torch.optim.optimizer"


class Finder:
    """Meta path finder that calls a function once, after the import of torch.optim.optimizer."""

    def __init__(self, on_optimizers_imported):
        self._on_optimizers_imported = on_optimizers_imported

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
                self._on_optimizers_imported()
            except Exception:
                pass  # the job matters more than being watched

        spec.loader.exec_module = exec_module
        return spec
