"""The keys of a provider and its high-water mark: made once, renewed only for a new log, and moved on request."""

from __future__ import annotations

import time
from pathlib import Path

from pharoah_protocol.log.checkpoint import log_origin
from pharoah_provider.high_water import FILE, HighWater, Mark, missing_mark, newest_epoch, state_folder
from pharoah_provider.storage.duckdb.database import write_out
from pharoah_serving.errors import StoreError
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


def start_new_log(keys: str, db: Path) -> Keys:
    """A new signing key and a new mark, for a provider whose old ones are lost or were used elsewhere. The old ones are
    renamed. Raises ProviderError where there was no provider, and while a key service still has the old key."""
    folder = state_folder(keys, db)
    old = [path for name in (FILE, SIGNING_KEY) if (path := folder / name).exists()]
    if not old and not db.exists():
        raise StoreError(
            f"--new-log: no provider was here: {folder} has neither {SIGNING_KEY} nor {FILE}, and there is no {db}. "
            "Name the --keys and the --db of `serve`. A first start needs `pharoah-provider init` without --new-log"
        )
    if is_command(keys) and _has_signing_key(keys):
        raise StoreError(
            f"--new-log: the key service still has the old {SIGNING_KEY}, and a secret is never replaced. Let it "
            f"forget this key (`CMD forget {SIGNING_KEY}`), and repeat the command"
        )
    with FolderLock(folder, "provider"):
        newest = max(newest_seed(folder), newest_epoch(folder))
        for path in old:
            path.rename(_find_unused_name(path))
        made = make_keys(keys)
        HighWater.begin(folder, Mark(log_origin(made.public), epoch=newest, continues_database=True))
        return made


def _has_signing_key(keys: str) -> bool:
    """Whether a source of secrets gives a signing key."""
    try:
        return bool(open_keys(keys).public)
    except StoreError:
        return False


def move_away(keys: str, db: Path) -> None:
    """Let copies of the files start once at another place. They do not start here any more. Raises StoreError."""
    folder, origin, now = state_folder(keys, db), log_origin(open_keys(keys).public), time.time()
    with FolderLock(folder, "provider"):
        write_out(db)
        HighWater(folder, origin, now).move(now)


def _find_unused_name(path: Path) -> Path:
    """The first free name `NAME.old-N`. Raises StoreError."""
    for number in range(1, 1000):
        if not (old := path.with_name(f"{path.name}.old-{number}")).exists():
            return old
    raise StoreError(f"{path.parent}: too many old keys; move them away")
