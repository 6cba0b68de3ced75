"""Python processes of our own: neither the current folder nor the user's PYTHON* settings change what they import.

The commands import this module before anything else, so it needs nothing but what the interpreter has loaded already.
"""

# No annotations from `__future__`, no typing: both would be imported from folders that are not yet left out.

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_START = """\
import sys
sys.path += [path for path in {paths!r} if path not in sys.path]
import runpy
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""
"""What a child runs. The further places come after its own standard library and packages."""
_KEPT_VARIABLES = ("PYTHONHOME", "PYTHONPLATLIBDIR")
"""Without these an interpreter that was moved does not find its standard library."""
NEUTRAL_FOLDER = "/"
"""A folder that always exists and in which nobody but the administrator can leave a file."""


def own_module(module: str, *arguments: str, interpreter: str = "") -> list[str]:
    """A command line that runs one of our modules with this interpreter, wherever our packages are installed.

    Another `interpreter` must find our packages by itself.

    `-P` leaves the current folder out of the search path and `-s` the user's folder of packages, which may hold modules
    with the names of others; our own packages and what they need are added behind the standard library.
    """
    start = _START.format(paths=[] if interpreter else _search_path(), module=module)
    return [interpreter or sys.executable, "-P", "-s", "-c", start, *arguments]


def own_environment(environ: "Mapping[str, str]") -> dict[str, str]:
    """The environment for `own_module`: without the user's settings of Python."""
    return {name: value for name, value in environ.items() if not name.startswith("PYTHON") or name in _KEPT_VARIABLES}


_path_of_jobs: list[str] = []
"""Empty while the imports are not isolated."""


def isolate_imports() -> None:
    """In a command of ours: search the folders of PYTHONPATH last, and the current folder not at all.

    A `json.py` in one of them would otherwise take the place of the standard library's, in a process that the user's
    own job would never have started.
    """
    own, here, library = _own_folders(), _current_folder(), os.path.dirname(getattr(os, "__file__", ""))
    given = {_absolute(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep)} | {here}
    last = [entry for entry in sys.path if _absolute(entry) in given and entry != library]
    kept = [entry for entry in last if _absolute(entry) != here or entry in own]
    _path_of_jobs[:] = [entry for entry in sys.path if entry not in last or entry in kept]
    sys.path[:] = [entry for entry in sys.path if entry not in last] + kept


def path_of_jobs() -> list[str]:
    """The folders in which a script of this interpreter finds packages, in its order: those of PYTHONPATH come first.

    In a process of a job it is the search path itself; a command of ours searches in another order.
    """
    return _path_of_jobs or sys.path


def _search_path() -> list[str]:
    """Where this process finds packages, without the current folder and the folder of its script."""
    script = _absolute(os.path.dirname(sys.argv[0])) if sys.argv and sys.argv[0] else ""
    left_out, own = {_current_folder(), script}, _own_folders()
    found = [entry for entry in sys.path if os.path.isabs(entry) and _absolute(entry) not in left_out]
    return [*found, *(folder for folder in own if folder not in found)]


def _own_folders() -> list[str]:
    """Folders (or archives) that hold our packages, as far as they are loaded."""
    files = [getattr(sys.modules.get(name), "__file__", None) for name in ("pharoah_protocol", "pharoah")]
    return [os.path.dirname(os.path.dirname(file)) for file in files if file]


def _current_folder() -> str:
    """Empty when it has been deleted."""
    try:
        return os.path.realpath(os.getcwd())
    except OSError:
        return ""


def _absolute(folder: str) -> str:
    """Without symbolic links, so that two spellings of a folder are equal."""
    try:
        return os.path.realpath(folder or os.curdir)
    except OSError:
        return folder
