"""Put on PYTHONPATH by `pharoah run`. The process then goes on as it would without this module: its search path is its
own, and `sitecustomize` is the one that it has without us, or none."""

# mypy: ignore-errors
# No annotations: importing typing would be felt by every process of a job.

import os
import sys

_OUR_PACKAGES = ("pharoah", "pharoah_protocol", "pharoah_archetypes")
_LIBRARY_MODULES = ("resource", "shlex", "tomllib")
"""Modules that watching imports and torch does not; a test compares them."""


def _leave_the_search_path():
    here = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    sys.path_importer_cache.pop(here, None)


def _wait_for_torch():
    try:
        from pharoah_finder import Finder

        sys.meta_path.insert(0, Finder(_watch_this_process))
    except Exception:
        pass  # the job matters more than being watched
    sys.modules.pop("pharoah_finder", None)


def _finds_the_right_modules():
    """Whether what watching imports, and the job has not imported, is ours and the standard library's.

    A script may have a module with such a name in its folder, which the job alone would never run.
    """
    import importlib.util  # torch has loaded it

    library = os.path.dirname(os.__file__)
    for name in _OUR_PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None or not (spec.origin or "").endswith("__init__.py"):
            return False
    for name in _LIBRARY_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None or not (spec.origin or "").startswith((library, "built-in", "frozen")):
            return False
    return True


def _watch_this_process():
    if not _finds_the_right_modules():
        return
    from pharoah import _flight_responder, _session
    from pharoah.capture import hooks

    hooks.watch_optimizers(_session.join_from_hook)
    if os.environ.get("PHAROAH_SERVES"):
        hooks.watch_models(_session.join_from_hook)
    _flight_responder.start_responder_from_hook()
    _session.watch_end_from_hook()


# Programs of a job may run under older interpreters, also under Python 2, which a finder of today stops from importing.
if os.environ.get("PHAROAH_SIDECAR") and sys.version_info >= (3, 11):
    _wait_for_torch()
_leave_the_search_path()
# The import that `site` has asked for, again: it now finds the user's own module, which takes this one's place, and
# raises what it would raise without us. `site` handles both.
_this = sys.modules.pop("sitecustomize", None)  # Python 2 clears a module to which nothing refers
import sitecustomize  # noqa: E402, F401
