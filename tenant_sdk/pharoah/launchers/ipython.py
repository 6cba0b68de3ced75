"""`ipython script.py`: how scripts run that were exported from a notebook and still call `get_ipython()`."""

from __future__ import annotations

from collections.abc import Sequence

from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._program import Launch, Program


def _launch(words: Sequence[str]) -> Launch:
    return Launch(python_beside(words[0]), Program(("-m", "IPython", *words[1:])))


IPYTHON = Launcher("ipython", "a script in IPython, such as an exported notebook", ("ipython", "ipython3"), _launch)
