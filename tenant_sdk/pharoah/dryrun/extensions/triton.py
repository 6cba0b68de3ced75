"""Triton: kernels written in Python. A dry run does not run them, and the dispatcher of torch does not see them either.

https://triton-lang.org
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pharoah.dryrun.extensions._extension import Extension


class _Kernel:
    """A function that a script launches on a grid, `kernel[grid](...)`."""

    def __init__(self, function: Any) -> None:
        self.fn = function

    def __getitem__(self, grid: Any) -> Any:
        return lambda *_, **__: None

    def run(self, *_: Any, **__: Any) -> None:
        """Launch it with the grid as an argument."""


def _decorate(function: Any = None, *_: Any, **__: Any) -> Any:
    return _Kernel(function) if callable(function) else _Kernel


def _modules() -> Mapping[str, Mapping[str, Any]]:
    def same(*_: Any, **__: Any) -> Any:
        return lambda kernel: kernel

    names = {
        "jit": _decorate,
        "autotune": same,
        "heuristics": same,
        "Config": lambda *_, **__: None,
        "cdiv": lambda a, b: -(-a // b),
        "next_power_of_2": lambda n: 1 << (n - 1).bit_length(),
    }
    return {"triton": names, "triton.language": {}}


EXTENSION = Extension(
    name="triton",
    help="kernels written in Python, which neither a dry run nor the dispatcher sees",
    distribution="triton",
    version="3.6.0",
    modules=_modules,
    any_name=True,
)
