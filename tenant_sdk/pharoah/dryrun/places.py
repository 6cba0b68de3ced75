"""Places in a script, as `train.py:42`: what a user looks for when a dry run cannot go on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType, TracebackType

_OWN_FOLDER = f"{Path(__file__).parents[1]}/"
_START_OF_SCRIPTS = str(Path(os.__file__).with_name("runpy.py"))
_INSTALLED = ("/site-packages/torch/", "/dist-packages/torch/")


def caller_frame() -> FrameType:
    """The innermost frame outside of torch and this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def place_of(frame: FrameType) -> str:
    """A frame's file and line, as `train.py:42`."""
    return render_place(frame.f_code.co_filename, frame.f_lineno)


def place_of_fault(trace: TracebackType | None) -> str:
    """The innermost frame of a traceback outside of torch and this package."""
    found = "<string>:0"
    while trace is not None:
        if not is_library(trace.tb_frame.f_code.co_filename):
            found = render_place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def render_place(path: str, line: int) -> str:
    """File and line without the folder."""
    return f"{path.rpartition('/')[2]}:{line}"


def is_library(path: str) -> bool:
    """Whether a file belongs to torch, to this package or to the interpreter's own start of scripts.

    The place of a folder counts, and not its name: a user may keep a script in a folder `torch`. A torch whose import
    has failed is not among the modules any more, so it is also known by the place where distributions are installed.
    """
    if path.startswith(("<", _OWN_FOLDER)) or path == _START_OF_SCRIPTS or any(one in path for one in _INSTALLED):
        return True
    folder, _, name = (getattr(sys.modules.get("torch"), "__file__", None) or "").rpartition("/")
    return name == "__init__.py" and path.startswith(f"{folder}/")


def is_installed(path: str) -> bool:
    """Whether a file belongs to an installed distribution, and so not to the user's own code."""
    return "/site-packages/" in path or "/dist-packages/" in path
