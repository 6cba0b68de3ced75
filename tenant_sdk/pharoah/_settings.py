"""Settings of the tenant's side: an explicit argument wins over an environment variable, and that over the default.

Each setting is one field of `Settings`, with its variable, its help and its check. `settings_table` is the table of
docs/tenant/settings.md. Only this module reads variables of settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from enum import Enum
from typing import Any

from pharoah._errors import SettingsError
from pharoah_protocol.vocabulary import LaunchGate, Mode, Privacy
from pharoah_system.text import render_value

DO_NOT_TRACK = "DO_NOT_TRACK"
"""Any value but empty and 0 disables Pharoah: an agreement between tools, see https://consoledonottrack.com."""
STATE_HOME = "XDG_STATE_HOME"
"""Where programs of a user keep state, by the XDG base directory specification."""
MAX_SECONDS = 1_000_000_000
"""30 years. From 9.2e9 s on, waiting fails in Python itself (`threading.TIMEOUT_MAX`)."""
MIN_CAPTURE_EVERY_STEPS = 1000
"""A captured step is slower than others; once in 1,000 steps its cost does not show."""

Check = Callable[[Any], str]
"""Gives what is wrong with a value, after its name; empty when nothing is."""


def _seconds(value: float) -> str:
    return "" if 0 < value <= MAX_SECONDS else f"{value} is not a number of seconds from above 0 to {MAX_SECONDS:g}"


def _seconds_of_an_hour(value: float) -> str:
    return "" if 0 <= value <= 3600 else f"{value} is not a number of seconds from 0 to 3600"


def _count(value: int) -> str:
    return "" if value >= 0 else f"{render_value(value)} is not a number of runs"


def _capture_interval(value: int) -> str:
    if value == 0 or value >= MIN_CAPTURE_EVERY_STEPS:
        return ""
    return f"{render_value(value)} would slow the job; 0, or {MIN_CAPTURE_EVERY_STEPS} and more"


def _alert_url(value: str) -> str:
    if not value:
        return ""
    from pharoah_system.http_address import HttpAddress, HttpAddressError  # here: a rank without it pays for no import

    try:
        HttpAddress.from_url(value)
    except HttpAddressError as error:  # it does not repeat the URL, which may hold a password
        return f"{error}; expected an address such as http://alertmanager:9093/api/v2/alerts"
    return ""


def _setting(default: Any, variable: str, help_text: str, check: Check | None = None, shown: str | None = None) -> Any:
    """One setting. `shown` is its default in the documentation, where that is not the value itself."""
    return field(default=default, metadata={"variable": variable, "help": help_text, "check": check, "shown": shown})


@dataclass(frozen=True)
class Settings:
    """All settings. The constructor raises SettingsError for a value that cannot be used."""

    endpoint: str = _setting(
        "",
        "PHAROAH_ENDPOINT",
        "the provider: host:port, or unix:/path of its socket on this machine; without it no provider is asked",
    )
    token_file: str = _setting(
        "", "PHAROAH_TOKEN_FILE", "file with your token, where the provider is on a Unix socket; only you may read it"
    )
    provider_key_file: str = _setting(
        "",
        "PHAROAH_PROVIDER_KEY_FILE",
        "file with the provider's Ed25519 public key in hex; answers that another key signed are refused",
    )
    ca_file: str = _setting("", "PHAROAH_CA_FILE", "PEM file of the authority that signed the provider's certificate")
    certificate_file: str = _setting(
        "", "PHAROAH_CERT_FILE", "PEM file of your certificate, which takes the place of a token"
    )
    certificate_key_file: str = _setting("", "PHAROAH_CERT_KEY_FILE", "PEM file of your certificate's private key")
    witnesses_file: str = _setting(
        "",
        "PHAROAH_WITNESSES_FILE",
        "file with the keys of witnesses, one per line; more than half of them must have signed the log you are shown",
    )
    share_outcomes: bool = _setting(
        False,
        "PHAROAH_SHARE_OUTCOMES",
        "1: the provider may count how your runs end, under a pseudonym of the job that takes two keys to compute",
    )
    auditor_endpoint: str = _setting(
        "",
        "PHAROAH_AUDITOR_ENDPOINT",
        "the auditor, who holds the second key of pseudonyms: host:port, or unix:/path",
    )
    auditor_key_file: str = _setting(
        "", "PHAROAH_AUDITOR_KEY_FILE", "file with the auditor's Ed25519 public key in hex"
    )
    auditor_token_file: str = _setting(
        "",
        "PHAROAH_AUDITOR_TOKEN_FILE",
        "file with your token for the auditor, where that is on a Unix socket; never the token for the provider",
    )
    job_secret_file: str = _setting(
        "",
        "PHAROAH_JOB_SECRET_FILE",
        "file with a secret that all nodes of a job share; without it the provider can test guesses of the name of "
        "the job's rendezvous",
    )
    late_ask_seconds: float = _setting(
        20.0,
        "PHAROAH_LATE_ASK_S",
        "a job that could not be dry-run is asked about at a multiple of this after its run has joined",
        _seconds,
    )
    node_socket: str = _setting(
        "/run/pharoah/agent.sock", "PHAROAH_NODE_SOCKET", "socket of the node's agent, which issues tickets"
    )
    service_users: str = _setting(
        "",
        "PHAROAH_SERVICE_USERS",
        "users (names or numbers, with commas between them) who may serve a Unix socket, besides root and you",
    )
    mode: Mode = _setting(  # noqa: RUF009 - returns a field
        Mode.ONLINE,
        "PHAROAH_MODE",
        "online: ask the provider; offline: call no provider, no auditor and no receiver of alerts, and do everything "
        "else; dryrun: `pharoah check` prints what would be sent, and nothing else is done; disabled: do nothing",
    )
    privacy: Privacy = _setting(  # noqa: RUF009 - returns a field
        Privacy.PRIVATE,
        "PHAROAH_PRIVACY",
        "private: the provider learns nothing about the job; hashed: it gets keyed hashes and can test guesses",
    )
    gate: LaunchGate = _setting(  # noqa: RUF009 - returns a field
        LaunchGate.WARN,
        "PHAROAH_GATE",
        "off: print nothing; warn: print what was found; block: do not start an incompatible job",
    )
    timeout_seconds: float = _setting(
        2.0,
        "PHAROAH_TIMEOUT_S",
        "how long one call to the provider may take; the provider is not sent this number",
        _seconds,
    )
    dry_run_timeout_seconds: float = _setting(
        30.0,
        "PHAROAH_DRY_RUN_TIMEOUT_S",
        "how long a dry run may take: of the time that it has had where no job waits for it (`pharoah check`), else in "
        "wall time",
        _seconds,
    )
    allow_unprotected_dry_run: bool = _setting(
        False,
        "PHAROAH_DRY_RUN_UNPROTECTED",
        "1: a job may be dry-run also where this machine offers no sandbox; side effects of code in C then happen",
    )
    shutdown_timeout_seconds: float = _setting(
        2.0, "PHAROAH_SHUTDOWN_TIMEOUT_S", "how long Pharoah may delay the end of the job", _seconds
    )
    allow_beside_job: bool = _setting(
        False,
        "PHAROAH_ALLOW_BESIDE_JOB",
        "1: the provider may run micro-benchmarks on this node while the job runs",
    )
    ask_validation: bool = _setting(
        False,
        "PHAROAH_ASK_VALIDATION",
        "1: when steps become slower for a reason outside of your job, the provider is asked to validate the node",
    )
    probe_limit_seconds: float = _setting(
        10.0, "PHAROAH_PROBE_LIMIT_S", "how long one micro-benchmark beside the job may take", _seconds
    )
    guest_probe_seconds: float = _setting(
        0.0,
        "PHAROAH_GUEST_PROBE_S",
        "with PHAROAH_ALLOW_BESIDE_JOB=1: how long in an hour Pharoah's own process beside the job may run "
        "micro-benchmarks that the provider orders, where the node's agent is not connected; 0: it runs none",
        _seconds_of_an_hour,
    )
    capture_every_steps: int = _setting(
        0,
        "PHAROAH_CAPTURE_EVERY_STEPS",
        f"capture the operators of one step again after so many steps ({MIN_CAPTURE_EVERY_STEPS} or more); "
        "0: only step 4",
        _capture_interval,
    )
    step_file: str = _setting(
        "",
        "PHAROAH_STEP_FILE",
        "save step 6 of the job in this file, with its weights and data, for `pharoah replay`; the step takes longer, "
        "and rank 2 adds `.rank2` to the name",
    )
    hang_after_seconds: float = _setting(
        60.0,
        "PHAROAH_HANG_AFTER_S",
        "how long no rank may step before all ranks are asked which collective they wait in",
        _seconds,
    )
    local_alerts: bool = _setting(
        True,
        "PHAROAH_LOCAL_ALERTS",
        "0: the sidecar does not look at your processes, and raises no alerts of its own",
    )
    alert_url: str = _setting(
        "",
        "PHAROAH_ALERT_URL",
        "receiver of your alerts, as an Alertmanager takes them: http://alertmanager:9093/api/v2/alerts",
        _alert_url,
    )
    verdict_file: str = _setting("", "PHAROAH_VERDICT_FILE", "write the verdict into this file as JSON")
    state_folder: str = _setting(
        "~/.local/state/pharoah",
        "PHAROAH_STATE_DIR",
        "folder of the records of your runs",
        shown="`$XDG_STATE_HOME/pharoah`, else `~/.local/state/pharoah`",
    )
    keep_runs: int = _setting(
        200,
        "PHAROAH_KEEP_RUNS",
        "how many records of runs are kept; 0: none, and only what was seen of the provider's log",
        _count,
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            name = f"{setting.name} ({setting.metadata['variable']})"
            object.__setattr__(self, setting.name, _check(name, setting, getattr(self, setting.name)))
        if self.mode is Mode.OFFLINE:  # here, so that nobody who has these settings can open a connection
            for name in _CALLED:
                object.__setattr__(self, name, "")

    @property
    def no_provider(self) -> str:
        """Why no provider is asked; empty where one is."""
        if self.endpoint:
            return ""
        if self.mode is Mode.OFFLINE:
            return f"mode={self.mode}: the provider is not asked"
        return f"no provider is configured ({VARIABLES['endpoint']})"

    def with_absolute_paths(self) -> Settings:
        """The same settings for a process with another current folder. What was deleted under us stays as it is."""
        absolute: dict[str, Any] = {name: _absolute(getattr(self, name)) for name in _PATHS}
        if self.endpoint.startswith(_SOCKET_PREFIX):
            absolute["endpoint"] = _SOCKET_PREFIX + _absolute(self.endpoint.removeprefix(_SOCKET_PREFIX))
        return replace(self, **absolute)

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        unreadable: Callable[[str], None] | None = None,
        **explicit: Any,
    ) -> Settings:
        """Settings from arguments that are not None, then the environment.

        With `unreadable`, a variable that cannot be read keeps its default, and `unreadable` gets a line about it: what
        a site sets for all of its jobs must not keep one of them from starting. Raises SettingsError for an argument
        that cannot be used, and without `unreadable` for such a variable.
        """
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for setting in fields(cls):
            variable = setting.metadata["variable"]
            if explicit.get(setting.name) is not None:
                values[setting.name] = explicit[setting.name]
            elif text := environ.get(variable, ""):
                try:
                    values[setting.name] = _check(variable, setting, _parse(variable, setting.default, text))
                except SettingsError as error:
                    if unreadable is None:
                        raise
                    unreadable(f"{error}; the default is used: {_render_default(setting)}")
        if "state_folder" not in values and (state := environ.get(STATE_HOME)):
            values["state_folder"] = f"{state}/pharoah"
        if environ.get(DO_NOT_TRACK, "") not in ("", "0"):
            values["mode"] = Mode.DISABLED
        return cls(**values)


_PATHS = tuple(
    setting.name
    for setting in fields(Settings)
    if setting.name.endswith(("_file", "_folder")) or setting.name == "node_socket"
)
"""Settings that are paths."""
_CALLED = ("endpoint", "auditor_endpoint", "alert_url")
"""Settings that say whom the tenant's side calls; `mode=offline` empties them."""
_SOCKET_PREFIX = "unix:"
"""Beginning of an endpoint that is a path, as gRPC writes it."""


def _absolute(path: str) -> str:
    """Empty stays empty, and a path in a home (`~`) stays as it is: who uses it replaces the home."""
    if not path or path.startswith("~"):
        return path
    try:
        return os.path.abspath(path)  # noqa: PTH100 - Path's does not tidy it up
    except OSError:  # the current folder has been deleted
        return path


VARIABLES: dict[str, str] = {setting.name: setting.metadata["variable"] for setting in fields(Settings)}
"""The environment variable of each setting."""


def settings_table() -> str:
    """All settings as a table in Markdown."""
    return "\n".join(_rows())


def _rows() -> Iterator[str]:
    yield "| variable | meaning | default |"
    yield "|---|---|---|"
    for setting in fields(Settings):
        data, quoted = setting.metadata, setting.default and isinstance(setting.default, str)
        default = _render_default(setting) if setting.default != "" else ""
        row = f"| `{data['variable']}` | {data['help']} | {data['shown'] or (f'`{default}`' if quoted else default)} |"
        yield row.replace("|  |", "| |")


def _render_default(setting: Field[Any]) -> str:
    value = setting.default
    return f"{value:g}" if isinstance(value, (int, float)) else str(value) or "none"


def _check(name: str, setting: Field[Any], value: Any) -> Any:
    """The value of a setting, which may be used. Raises SettingsError; `name` is how the message begins."""
    if isinstance(setting.default, Enum):
        return _member(name, type(setting.default), value)
    check: Check | None = setting.metadata["check"]
    try:
        wrong = check(value) if check else ""
    except (TypeError, AttributeError):
        wrong = f"{render_value(value)} is not a {type(setting.default).__name__}"
    if wrong:
        raise SettingsError(f"{name}: {wrong}")
    return value


def _parse(variable: str, default: Any, text: str) -> Any:
    """The value of a variable's text, of the type of the default."""
    if isinstance(default, Enum):
        return _member(variable, type(default), text)
    parsers: dict[type, Callable[[str], Any]] = {
        str: str,
        float: lambda seconds: float(seconds.removesuffix("s")),
        int: int,
        bool: _flag,
    }
    kind = type(default)
    try:
        return parsers[kind](text)
    except ValueError:
        raise SettingsError(f"{variable}: {render_value(text)} is not a {kind.__name__}") from None


def _member(name: str, kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(str(member.value) for member in kind)
        raise SettingsError(f"{name}: {render_value(value)} is not one of {allowed}") from None


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)
