"""Settings of the tenant side. Explicit argument > environment variable > default; only this module reads both.

| variable | setting | default |
|---|---|---|
| `PHAROAH_ENDPOINT` | `endpoint` | none: verdicts stay local and unknown |
| `PHAROAH_TOKEN_FILE` | `token_file` | none |
| `PHAROAH_PROVIDER_KEY_FILE` | `provider_key_file` | none |
| `PHAROAH_CA_FILE` | `ca_file` | none |
| `PHAROAH_CERT_FILE` | `certificate_file` | none |
| `PHAROAH_CERT_KEY_FILE` | `certificate_key_file` | none |
| `PHAROAH_WITNESSES_FILE` | `witnesses_file` | none |
| `PHAROAH_SHARE_OUTCOMES` | `share_outcomes` | 0 |
| `PHAROAH_AUDITOR_ENDPOINT` | `auditor_endpoint` | none |
| `PHAROAH_AUDITOR_KEY_FILE` | `auditor_key_file` | none |
| `PHAROAH_LATE_ASK_S` | `late_ask_seconds` | 20 |
| `PHAROAH_NODE_SOCKET` | `node_socket` | `/run/pharoah/agent.sock` |
| `PHAROAH_MODE` | `mode` | `online` |
| `PHAROAH_PRIVACY` | `privacy` | `private` |
| `PHAROAH_GATE` | `gate` | `warn` |
| `PHAROAH_TIMEOUT_S` | `timeout_seconds` | 2 |
| `PHAROAH_DRY_RUN_TIMEOUT_S` | `dry_run_timeout_seconds` | 30 |
| `PHAROAH_SHUTDOWN_TIMEOUT_S` | `shutdown_timeout_seconds` | 2 |
| `PHAROAH_ALLOW_BESIDE_JOB` | `allow_beside_job` | 0 |
| `PHAROAH_HANG_AFTER_S` | `hang_after_seconds` | 60 |
| `PHAROAH_VERDICT_FILE` | `verdict_file` | none |
| `PHAROAH_STATE_DIR` | `state_folder` | `$XDG_STATE_HOME/pharoah`, else `~/.local/state/pharoah` |
| `PHAROAH_KEEP_RUNS` | `keep_runs` | 200 |
| `DO_NOT_TRACK=1` | sets `mode=disabled` | |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from pharoah._errors import SettingsError

MODES = ("online", "offline", "dryrun", "disabled")
GATES = ("off", "warn", "block")
PRIVACIES = ("private", "hashed")
LEAST_CAPTURE_EVERY = 1000


@dataclass(frozen=True)
class Settings:
    endpoint: str = ""
    """host:port of the provider; empty means nobody is asked."""
    token_file: str = ""
    """File that holds this tenant's token."""
    provider_key_file: str = ""
    """File with the provider's Ed25519 public key in hex; heads signed by anyone else are refused."""
    ca_file: str = ""
    """Who signs the provider's certificate (PEM). With it, `certificate_file` and `certificate_key_file` say who we
    are, in place of a token."""
    certificate_file: str = ""
    certificate_key_file: str = ""
    witnesses_file: str = ""
    """Keys of witnesses, one a line; more than half of them must have seen the log the provider shows us."""
    share_outcomes: bool = False
    """Whether the provider may add up how runs like ours end, under a name that nobody can look up alone."""
    auditor_endpoint: str = ""
    """host:port of who holds the other key of names."""
    auditor_key_file: str = ""
    """File with the auditor's Ed25519 public key in hex."""
    late_ask_seconds: float = 20.0
    """A job that could not be looked at before its launch is asked about at a multiple of this after it: when exactly
    it had loaded must not show."""
    node_socket: str = "/run/pharoah/agent.sock"
    """Where the node's agent hands out tickets."""
    mode: str = "online"
    """online: ask; offline: open no socket; dryrun: `check` shows what would be sent; disabled: do nothing."""
    privacy: str = "private"
    """private: the provider learns nothing about the job; hashed: it gets keyed hashes, against which it can test
    what it can guess."""
    gate: str = "warn"
    """off: do not ask before launch; warn: say what was found; block: do not start an incompatible job."""
    timeout_seconds: float = 2.0
    """Deadline of one call to the provider."""
    dry_run_timeout_seconds: float = 30.0
    shutdown_timeout_seconds: float = 2.0
    """Most that leaving the job may be delayed."""
    allow_beside_job: bool = False
    """Whether the provider may run micro-benchmarks on this node while the job runs."""
    probe_limit_seconds: float = 10.0
    """Most seconds one micro-benchmark beside the job may take."""
    capture_every_steps: int = 0
    """Look at the operators of one step again after so many steps; 0: only once, early in the run."""
    hang_after_seconds: float = 60.0
    """How long no rank may step before all are asked which collective they wait in."""
    verdict_file: str = ""
    """Where to leave the verdict as JSON, for schedulers."""
    state_folder: str = "~/.local/state/pharoah"
    """Where records of this user's runs are kept."""
    keep_runs: int = 200
    """How many of them; 0 keeps none."""

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **explicit: Any) -> Settings:
        """Settings from arguments that are not None, then the environment. Raises SettingsError."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for field in fields(cls):
            if explicit.get(field.name) is not None:
                values[field.name] = explicit[field.name]
            elif (text := environ.get(_VARIABLES.get(field.name, ""), "")) != "":
                values[field.name] = _parse(field.name, type(field.default), text)
        if "state_folder" not in values and (state := environ.get("XDG_STATE_HOME")):
            values["state_folder"] = f"{state}/pharoah"
        if environ.get("DO_NOT_TRACK", "") not in ("", "0"):
            values["mode"] = "disabled"
        settings = cls(**values)
        settings._check()
        return settings

    def _check(self) -> None:
        for name, allowed in (("mode", MODES), ("gate", GATES), ("privacy", PRIVACIES)):
            if getattr(self, name) not in allowed:
                raise SettingsError(f"{name}: {getattr(self, name)!r} is not one of {', '.join(allowed)}")
        for name in (
            "timeout_seconds",
            "dry_run_timeout_seconds",
            "shutdown_timeout_seconds",
            "probe_limit_seconds",
            "hang_after_seconds",
            "late_ask_seconds",
        ):
            if not 0 < getattr(self, name) < float("inf"):
                raise SettingsError(f"{name}: {getattr(self, name)} is not a positive number of seconds")
        if self.keep_runs < 0:
            raise SettingsError(f"keep_runs: {self.keep_runs} is not a number of runs")
        if self.capture_every_steps and self.capture_every_steps < LEAST_CAPTURE_EVERY:
            every = self.capture_every_steps
            raise SettingsError(
                f"capture_every_steps: {every} would slow the job; 0, or {LEAST_CAPTURE_EVERY} and more"
            )


_VARIABLES = {
    "endpoint": "PHAROAH_ENDPOINT",
    "token_file": "PHAROAH_TOKEN_FILE",
    "provider_key_file": "PHAROAH_PROVIDER_KEY_FILE",
    "ca_file": "PHAROAH_CA_FILE",
    "certificate_file": "PHAROAH_CERT_FILE",
    "certificate_key_file": "PHAROAH_CERT_KEY_FILE",
    "witnesses_file": "PHAROAH_WITNESSES_FILE",
    "share_outcomes": "PHAROAH_SHARE_OUTCOMES",
    "auditor_endpoint": "PHAROAH_AUDITOR_ENDPOINT",
    "auditor_key_file": "PHAROAH_AUDITOR_KEY_FILE",
    "late_ask_seconds": "PHAROAH_LATE_ASK_S",
    "node_socket": "PHAROAH_NODE_SOCKET",
    "mode": "PHAROAH_MODE",
    "privacy": "PHAROAH_PRIVACY",
    "gate": "PHAROAH_GATE",
    "timeout_seconds": "PHAROAH_TIMEOUT_S",
    "dry_run_timeout_seconds": "PHAROAH_DRY_RUN_TIMEOUT_S",
    "shutdown_timeout_seconds": "PHAROAH_SHUTDOWN_TIMEOUT_S",
    "allow_beside_job": "PHAROAH_ALLOW_BESIDE_JOB",
    "capture_every_steps": "PHAROAH_CAPTURE_EVERY_STEPS",
    "hang_after_seconds": "PHAROAH_HANG_AFTER_S",
    "verdict_file": "PHAROAH_VERDICT_FILE",
    "state_folder": "PHAROAH_STATE_DIR",
    "keep_runs": "PHAROAH_KEEP_RUNS",
}


def _parse(name: str, kind: type, text: str) -> Any:
    parsers: dict[type, Callable[[str], Any]] = {
        str: str,
        float: lambda s: float(s.removesuffix("s")),
        int: int,
        bool: _flag,
    }
    try:
        return parsers[kind](text)
    except ValueError:
        raise SettingsError(f"{_VARIABLES[name]}: {text!r} is not a {kind.__name__}") from None


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)
