"""`pharoah-provider table import FILE --from NAME --key FILE`: use the portable table of another provider."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pharoah_protocol.bounds import MAX_TABLE_BYTES
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_protocol.v1 import ImportTableRequest
from pharoah_provider import channel
from pharoah_provider.cli._calls import CallError, call
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import UnreadableInput, read_text
from pharoah_system.standard_streams import show


def add_parser(actions: Any) -> None:
    """Add this action."""
    what = "use the portable table of another provider from the next `learn` on"
    parser = actions.add_parser("import", help=what, description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="the table, as `table export --portable`")
    parser.add_argument("--from", dest="provider", required=True, metavar="NAME", help="your name for that provider")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its public key, from itself: 64 hexadecimal digits")
    parser.add_argument("--remove", action="store_true", help="use its table no longer, in place of a FILE")
    channel.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Raises ProviderError for a call that is refused and for a file that cannot be read."""
    if arguments.remove:
        if arguments.file or arguments.key:
            raise ProviderError("--remove: takes no FILE and no --key")
        found = call(arguments, "ImportTable", ImportTableRequest(provider=arguments.provider))
        show(f"{found.rows} rows of {arguments.provider} are not used from the next `learn` on")
        return 0
    if arguments.file is None or arguments.key is None:
        raise ProviderError("table import: give a FILE and the --key of its provider, or --remove")
    try:
        content, key = read_text(arguments.file), read_public_key(arguments.key).public_bytes_raw()
    except OSError as error:
        raise ProviderError(f"{arguments.file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise ProviderError(str(error)) from None
    except HeadError as error:
        raise ProviderError(str(error)) from None
    if len(content.encode()) > MAX_TABLE_BYTES:
        raise ProviderError(f"{arguments.file}: it has more than {MAX_TABLE_BYTES:,} bytes")
    request = ImportTableRequest(content=content, provider=arguments.provider, key=key)
    try:
        found = call(arguments, "ImportTable", request)
    except CallError as error:
        raise ProviderError(f"{arguments.file}: {error}") from None
    show(f"{found.rows} rows of {arguments.provider}; {found.applicable} are about device models of nodes here")
    show("they warn at most, and rows of own trials replace them; `pharoah-provider learn` makes a release with them")
    return 0
