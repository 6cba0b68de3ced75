from __future__ import annotations

from pathlib import Path

import pytest

from pharoah._errors import SettingsError
from pharoah._settings import Settings, settings_table
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
        ({"PHAROAH_TIMEOUT_S": "-1"}, "timeout_seconds .PHAROAH_TIMEOUT_S."),
        ({"PHAROAH_GATE": "maybe"}, "PHAROAH_GATE"),
        ({"PHAROAH_MODE": "loud"}, "PHAROAH_MODE"),
        ({"PHAROAH_ALLOW_BESIDE_JOB": "perhaps"}, "PHAROAH_ALLOW_BESIDE_JOB"),
        ({"PHAROAH_PRIVACY": "none"}, "PHAROAH_PRIVACY"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.load(environ)


def test_values_that_are_given_directly_are_checked_too() -> None:
    assert Settings(gate="block").gate is LaunchGate.BLOCK  # type: ignore[arg-type]
    for wrong in ({"gate": "maybe"}, {"timeout_seconds": 0.0}, {"capture_every_steps": 10}, {"keep_runs": -1}):
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Settings(**wrong)


def test_the_table_of_the_documentation_is_that_of_the_settings() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tenant.md").read_text()
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
