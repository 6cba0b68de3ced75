"""Pharoah for tenants: `import pharoah; pharoah.register()`, or `pharoah run -- python train.py` without any edit.

Importing this package starts no thread, opens no socket and imports neither grpc nor torch. What it offers is loaded
when it is first used: loader workers and ranks that only import a training script never need it.
"""

import importlib
from typing import TYPE_CHECKING

from pharoah_protocol import __version__ as __version__

if TYPE_CHECKING:
    from pharoah._alert import Alert
    from pharoah._errors import IncompatibleError, PharoahError, SettingsError
    from pharoah._session import Session, register
    from pharoah._verdict import Finding, Verdict

__all__ = [
    "Alert",
    "Finding",
    "IncompatibleError",
    "PharoahError",
    "Session",
    "SettingsError",
    "Verdict",
    "register",
]

_HOMES = {
    "Alert": "_alert",
    "Finding": "_verdict",
    "IncompatibleError": "_errors",
    "PharoahError": "_errors",
    "Session": "_session",
    "SettingsError": "_errors",
    "Verdict": "_verdict",
    "register": "_session",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
