"""The keys of a provider and its high-water mark: made once, renewed only for a new log, and moved on request."""

from __future__ import annotations

import time
from pathlib import Path

from pharoah_protocol.log.checkpoint import log_origin
from pharoah_provider.high_water import FILE, HighWater, Mark, missing_mark, state_folder
from pharoah_serving.errors import ProviderError, StoreError
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.keys import SIGNING_KEY, Keys, is_command, make_keys, newest_seed, open_keys


def make_provider(keys: str, db: Path) -> Keys:
    """The keys of a provider, made if there are none. Raises StoreError for a signing key without a mark: what was
    signed with it is not known."""
    folder = state_folder(keys, db)
    with FolderLock(folder, "provider"):
        if (folder / FILE).exists():
            return make_keys(keys)
        if not is_command(keys) and (folder / SIGNING_KEY).exists():
            raise missing_mark(folder)
        made = make_keys(keys)
        HighWater.begin(folder, Mark(log_origin(made.public)))
        return made


def start_new_log(keys: str) -> Keys:
    """A new signing key and a new mark, for a provider whose old ones are lost or were used elsewhere. The old ones are
    renamed. Raises ProviderError."""
    if is_command(keys):
        raise ProviderError(
            "--new-log: let the key service make another signing.key, remove the .state folder, run init"
        )
    folder = Path(keys)
    with FolderLock(folder, "provider"):
        newest = newest_seed(folder)
        for name in (FILE, SIGNING_KEY):
            if (folder / name).exists():
                (folder / name).rename(_unused(folder / name))
        made = make_keys(keys)
        HighWater.begin(folder, Mark(log_origin(made.public), epoch=newest, continues_database=True))
        return made


def move_away(keys: str, db: Path) -> None:
    """Let copies of the files start once at another place. They do not start here any more. Raises StoreError."""
    folder, origin, now = state_folder(keys, db), log_origin(open_keys(keys).public), time.time()
    with FolderLock(folder, "provider"):
        HighWater(folder, origin, now).move(now)


def _unused(path: Path) -> Path:
    """The first free name `NAME.old-N`. Raises StoreError."""
    for number in range(1, 1000):
        if not (old := path.with_name(f"{path.name}.old-{number}")).exists():
            return old
    raise StoreError(f"{path.parent}: too many old keys; move them away")
