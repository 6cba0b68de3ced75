from __future__ import annotations

import pytest

from pharoah._errors import SettingsError
from pharoah._settings import Settings


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
        ({"PHAROAH_TIMEOUT_S": "-1"}, "timeout_seconds"),
        ({"PHAROAH_GATE": "maybe"}, "gate"),
        ({"PHAROAH_MODE": "loud"}, "mode"),
        ({"PHAROAH_ALLOW_BESIDE_JOB": "perhaps"}, "PHAROAH_ALLOW_BESIDE_JOB"),
        ({"PHAROAH_PRIVACY": "none"}, "privacy"),
    ],
)
def test_a_setting_that_cannot_be_read_is_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.load(environ)


def test_do_not_track_beats_everything() -> None:
    assert Settings.load({"DO_NOT_TRACK": "1", "PHAROAH_MODE": "online"}, mode="online").mode == "disabled"
