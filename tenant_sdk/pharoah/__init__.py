"""Pharoah for tenants: `import pharoah; pharoah.register()`, or `pharoah run -- python train.py` without any edit.

Importing this package starts no thread, opens no socket and imports neither grpc nor torch.
"""

from pharoah._alert import Alert
from pharoah._errors import IncompatibleError, PharoahError, SettingsError
from pharoah._session import Session, register
from pharoah._verdict import Finding, Verdict

__version__ = "0.1.0"

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
