from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from pharoah._errors import SettingsError
from pharoah._settings import VARIABLES, Settings, settings_table
from pharoah_protocol.vocabulary import LaunchGate, Mode


def test_argument_beats_environment_beats_default() -> None:
    environ = {"PHAROAH_GATE": "block", "PHAROAH_TIMEOUT_S": "5s"}
    assert Settings.load(environ, gate="off").gate == "off"
    assert Settings.load(environ).gate == "block"
    assert Settings.load(environ).timeout_seconds == 5
    assert Settings.load({}).gate == "warn"


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"PHAROAH_TIMEOUT_S": "soon"}, "PHAROAH_TIMEOUT_S"),
        ({"PHAROAH_TIMEOUT_S": "-1"}, "PHAROAH_TIMEOUT_S: -1"),
        ({"PHAROAH_GATE": "maybe"}, "PHAROAH_GATE"),
        ({"PHAROAH_MODE": "loud"}, "PHAROAH_MODE"),
        ({"PHAROAH_ALLOW_BESIDE_JOB": "perhaps"}, "PHAROAH_ALLOW_BESIDE_JOB"),
        ({"PHAROAH_PRIVACY": "none"}, "PHAROAH_PRIVACY"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.load(environ)


WRONG = {str: ["ftp://x"], float: ["soon", "nan", "inf", "-1", "1e999", "1e300", "\udcff"], bool: ["perhaps", "2"]}
"""Values that the settings of a kind cannot have; those of other kinds can have none of `float`."""


def test_a_variable_that_cannot_be_read_keeps_its_default_where_a_job_must_start() -> None:
    for setting in fields(Settings):
        kind, variable = type(setting.default), setting.metadata["variable"]
        if kind is str and variable != VARIABLES["alert_url"]:
            continue  # every text can be read
        for text in WRONG.get(kind, WRONG[float]):
            said: list[str] = []
            usable = Settings.load({"PHAROAH_ENDPOINT": "p:1", variable: text}, unreadable=said.append)
            assert getattr(usable, setting.name) == setting.default, (variable, text)
            assert usable.endpoint == "p:1", "the others are read"
            (line,) = said
            assert line.startswith(f"{variable}: ") and line.isprintable() and len(line) < 250
            with pytest.raises(SettingsError, match=variable):
                Settings.load({variable: text})


def test_an_argument_that_cannot_be_used_is_an_error_also_where_variables_are_not() -> None:
    for wrong in ({"gate": "maybe"}, {"dry_run_timeout_seconds": "soon"}, {"mode": 3}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Settings.load({"PHAROAH_GATE": "block"}, unreadable=lambda line: None, **wrong)


def test_values_that_are_given_directly_are_checked_too() -> None:
    assert Settings(gate="block").gate is LaunchGate.BLOCK  # type: ignore[arg-type]
    for wrong in ({"gate": "maybe"}, {"timeout_seconds": 0.0}, {"capture_every_steps": 10}, {"keep_runs": -1}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Settings(**wrong)


def test_the_table_of_the_documentation_is_that_of_the_settings() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tenant" / "settings.md").read_text()
    assert settings_table() in text, "paste what `pharoah._settings.settings_table()` gives"


def test_offline_settings_name_nobody_who_could_be_called() -> None:
    called = {"endpoint": "p:1", "auditor_endpoint": "a:1", "alert_url": "http://r:1"}
    online, offline = Settings(**called), Settings(**called, mode=Mode.OFFLINE)  # type: ignore[arg-type]
    assert {name: getattr(online, name) for name in called} == called and not online.no_provider
    assert {getattr(offline, name) for name in called} == {""}
    assert "mode=offline" in offline.no_provider and "PHAROAH_ENDPOINT" in Settings().no_provider
    assert not offline.with_absolute_paths().endpoint, "a sidecar gets these settings"


def test_do_not_track_beats_everything() -> None:
    assert Settings.load({"DO_NOT_TRACK": "1", "PHAROAH_MODE": "online"}, mode="online").mode == "disabled"
