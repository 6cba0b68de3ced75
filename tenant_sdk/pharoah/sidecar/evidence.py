"""What is kept of the exchange on this machine: signed answers for `pharoah audit`, and evidence of misbehaviour."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah_protocol.files import write_atomically

log = logging.getLogger("pharoah.sidecar")

KEPT_MISBEHAVIOURS = 20
"""Each may hold two whole tables."""


def exchange_folder(settings: Settings) -> Path | None:
    """The folder of this machine; None where nothing is kept. Homes may be shared between machines, and locks on remote
    disks may hang, so each machine has its own."""
    folder = os.path.expanduser(settings.state_folder)  # noqa: PTH111 - Path's raises
    if not settings.keep_runs or folder.startswith("~"):
        return None
    return Path(folder, "exchange", os.uname().nodename)


class Evidence:
    """Files of one folder, for this user's eyes: answers hold blinds, with which they can be opened."""

    def __init__(self, settings: Settings) -> None:
        self._folder, self._keep = exchange_folder(settings), settings.keep_runs

    def answer(self, run_id: str, record: Mapping[str, Any]) -> None:
        """What a run's verdict rests on."""
        self._write("answers", f"{run_id}.json", record, self._keep)

    def misbehaviour(self, proof: Mapping[str, Any]) -> Path | None:
        """Keep the provider's signed contradiction; gives the file, or None when it could not be written."""
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{str(proof['kind']).replace(' ', '-')}.json"
        return self._write("misbehaviours", name, proof, KEPT_MISBEHAVIOURS)

    def _write(self, kind: str, name: str, content: Mapping[str, Any], keep: int) -> Path | None:
        if self._folder is None:
            return None
        folder = self._folder / kind
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(folder / name, json.dumps(content))
            for old in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)[:-keep]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.warning("evidence is not kept: %s", error)
            return None
        return folder / name
