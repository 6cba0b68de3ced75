"""Waits for the import of torch, then watches its optimizers. Costs nothing in processes that never import torch."""

# mypy: ignore-errors
# No annotations and no imports but `sys`: each would be felt by every process of a job, and might find a module of the
# user's where the job itself never looks for it.

import sys

_TARGET = "torch"
"""The whole of it: a part of torch that is imported before torch itself would import it may stay without its name."""


class Finder:
    """Meta path finder that calls a function once, after the import of torch."""

    def __init__(self, on_torch_imported):
        self._on_torch_imported = on_torch_imported

    def find_spec(self, name, path=None, target=None):
        if name != _TARGET:
            return None
        spec = self._find_by_later_ones(name, path, target)
        execute = getattr(getattr(spec, "loader", None), "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            execute(module)
            if self not in sys.meta_path:
                return
            # Only now: many a program asks whether there is a torch before it imports it, or does not.
            sys.meta_path.remove(self)
            try:
                self._on_torch_imported()
            except Exception:
                pass  # the job matters more than being watched

        spec.loader.exec_module = exec_module
        return spec

    def _find_by_later_ones(self, name, path, target):
        finders = list(sys.meta_path)  # those before this one have been asked already
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None
