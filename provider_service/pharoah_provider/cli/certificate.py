"""`pharoah-provider certificate NAME`: make a certificate with an authority of this site's own."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pharoah_provider.certificates import Authority
from pharoah_serving.errors import ProviderError

NAME = re.compile(r"provider|auditor|tenant/[\w.-]+(/[\w.-]+)?|(agent|operator)/[\w.-]+")
SERVERS = ("provider", "auditor")
"""Names whose certificates also name the hosts under which they are reached."""
LOCAL_HOSTS = ("127.0.0.1", "localhost")


def add_parser(commands: Any) -> None:
    """Add this command."""
    what = "make a certificate, with an authority of this site's own"
    parser = commands.add_parser("certificate", help=what, description=__doc__)
    parser.add_argument("name", help="provider, auditor, tenant/ORG[/ACCOUNT], agent/NODE or operator/NAME")
    parser.add_argument("--folder", type=Path, default=Path("pharoah-pki"), help="default: %(default)s")
    parser.add_argument("--domain", default="pharoah.local", help="SPIFFE trust domain (default: %(default)s)")
    parser.add_argument(
        "--host", action="append", default=[], help="a name or an address of the server; may be repeated"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the files. Raises ProviderError for a name that is no caller's and for a folder that cannot be used."""
    name = arguments.name
    if not NAME.fullmatch(name):
        raise ProviderError(f"{name}: expected provider, auditor, tenant/ORG[/ACCOUNT], agent/NODE or operator/NAME")
    hosts = tuple(arguments.host) or (LOCAL_HOSTS if name in SERVERS else ())
    files = Authority(arguments.folder, arguments.domain).issue(name, hosts)
    print(f"{files[0]}\n{files[1]}\nauthority: {arguments.folder / 'ca.pem'}")
    return 0
