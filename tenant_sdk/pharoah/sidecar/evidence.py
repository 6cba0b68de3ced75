"""What is kept of the exchange on this machine: signed answers for `pharoah audit`, and evidence of misbehaviour.

A provider decides what its messages hold, so every kind of file is bounded in number and in bytes.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.sidecar.bounded_folder import Bound, keep_file
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key

log = logging.getLogger("pharoah.sidecar")

MISBEHAVIOURS = Bound(most_files=20, most_bytes=96 << 20)
"""One piece of evidence may hold two whole tables of 16 MiB in hexadecimal digits. One piece is enough for a proof."""
ANSWERS_BYTES = 32 << 20
"""All kept answers together. One has about 10 kB; the head of an epoch with 4,096 classes has half a megabyte."""


def state_folder(settings: Settings) -> Path | None:
    """The folder of this user's state; None without a home."""
    folder = os.path.expanduser(settings.state_folder)  # noqa: PTH111 - Path's raises
    return None if folder.startswith("~") else Path(folder)


def exchange_folder(settings: Settings) -> Path | None:
    """The folder of this user for one provider; None without a home or a provider's key.

    All machines that share a home share it, because what was seen of the provider's log must not be forgotten with the
    name of a host: a pod has a new one each time. Writers take the lock of `LogClient`, which nobody waits for long.
    """
    folder = state_folder(settings)
    if folder is None:
        return None
    try:
        public = read_public_key(Path(settings.provider_key_file)).public_bytes_raw()
    except HeadError:
        return None
    return Path(folder, "exchange", log_origin(public))


class Evidence:
    """Files of one folder, for this user's eyes: answers hold blinds, with which they can be opened."""

    def __init__(self, settings: Settings) -> None:
        self._folder, self._keep = exchange_folder(settings), settings.keep_runs

    def answer(self, run_id: str, record: Mapping[str, Any]) -> None:
        """What a run's verdict rests on; nothing is kept of runs where the user keeps none."""
        if self._keep:
            self._write("answers", f"{run_id}.json", record, Bound(self._keep, ANSWERS_BYTES))

    def misbehaviour(self, proof: Mapping[str, Any]) -> Path | None:
        """Keep the provider's signed contradiction; gives the file, or None when it could not be written."""
        name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{str(proof['kind']).replace(' ', '-')}.json"
        return self._write("misbehaviours", name, proof, MISBEHAVIOURS)

    def _write(self, kind: str, name: str, content: Mapping[str, Any], bound: Bound) -> Path | None:
        if self._folder is None:
            return None
        path, text = self._folder / kind / name, json.dumps(content).encode()
        try:
            if keep_file(path, text, bound):
                return path
            log.warning("evidence is not kept: it has %d bytes", len(text))
        except OSError as error:
            log.warning("evidence is not kept: %s", error)
        return None
