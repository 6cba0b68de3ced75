"""Waits for the import of torch's optimizers, then watches them. Costs nothing in processes that never import torch."""

# mypy: ignore-errors
# No annotations and no imports but `sys`: each would be felt by every process of a job, and might find a module of the
# user's where the job itself never looks for it.

import sys

_TARGET = "torch.optim.optimizer"


class Finder:
    """Meta path finder that calls a function once, after the import of torch.optim.optimizer."""

    def __init__(self, on_optimizers_imported):
        self._on_optimizers_imported = on_optimizers_imported

    def find_spec(self, name, path=None, target=None):
        if name != _TARGET or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = self._found_by_others(name, path, target)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            execute(module)
            try:
                self._on_optimizers_imported()
            except Exception:
                pass  # the job matters more than being watched

        spec.loader.exec_module = exec_module
        return spec

    def _found_by_others(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None
