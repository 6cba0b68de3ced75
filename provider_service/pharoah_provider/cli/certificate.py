"""`pharoah-provider certificate NAME`: make a certificate with an authority of this site's own."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from pharoah_protocol.channels import ServerRole
from pharoah_protocol.vocabulary import Role
from pharoah_provider.certificates import CERTIFICATE_DAYS, DENIED, Authority
from pharoah_provider.cli._values import count
from pharoah_serving.errors import ProviderError
from pharoah_serving.identity import is_reserved_node, why_no_node
from pharoah_system.standard_streams import show

_PART = r"[A-Za-z0-9][\w.-]*"
NAME = re.compile(rf"provider|auditor|tenant/{_PART}(/{_PART})?|(agent|operator)/{_PART}", re.ASCII)
DOMAIN = re.compile(_PART, re.ASCII)
"""A SPIFFE name is a URI: it has ASCII letters only."""
MAX_DAYS = 365
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
    parser.add_argument("--days", type=count, default=CERTIFICATE_DAYS, help="its lifetime (default: %(default)s)")
    parser.add_argument("--deny", action="store_true",
                        help="make none: put those of this name on the deny list instead")  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the files. Raises ProviderError for a name that is no caller's and for a folder that cannot be used."""
    name = arguments.name
    if not NAME.fullmatch(name):
        raise ProviderError(f"{name}: expected provider, auditor, tenant/ORG[/ACCOUNT], agent/NODE or operator/NAME")
    role, _, node = name.partition("/")
    if role == Role.AGENT and is_reserved_node(node) and not arguments.deny:
        raise ProviderError(why_no_node(node))
    if not 1 <= arguments.days <= MAX_DAYS:
        raise ProviderError(f"--days {arguments.days}: expected 1 to {MAX_DAYS}")
    if not DOMAIN.fullmatch(arguments.domain):
        raise ProviderError(f"--domain {arguments.domain}: expected letters a to z, digits, and . _ - between them")
    try:
        return _make_or_deny(arguments, Authority(arguments.folder, arguments.domain))
    except OSError as error:
        raise ProviderError(f"{arguments.folder}: {error.strerror or error}") from None


def _make_or_deny(arguments: argparse.Namespace, authority: Authority) -> int:
    """Raises ProviderError and OSError."""
    name = arguments.name
    if arguments.deny:
        show(f"{authority.deny(name)} certificates of {name} are on the deny list {arguments.folder / DENIED}")
        return 0
    hosts = tuple(arguments.host) or (LOCAL_HOSTS if name in tuple(ServerRole) else ())
    files = authority.issue(name, hosts, arguments.days)
    show(f"{files[0]}\n{files[1]}\nauthority: {arguments.folder / 'ca.pem'}")
    return 0
