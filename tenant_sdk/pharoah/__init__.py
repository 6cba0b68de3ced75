"""Pharoah for tenants: `import pharoah; pharoah.register()`, or `pharoah run -- python train.py` without any edit.

Importing this package starts no thread, opens no socket and imports neither grpc nor torch. What it offers is loaded
when it is first used: loader workers and ranks that only import a training script never need it.
"""

from pharoah_protocol import __version__ as __version__

TYPE_CHECKING = False
"""As in `typing`, whose import would bring a dozen modules, and before the command line has made its process safe."""
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
    import importlib  # here: when this package is loaded, nothing else is

    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
