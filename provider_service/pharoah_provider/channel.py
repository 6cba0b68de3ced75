"""How agents and operators reach the provider: with a certificate, or on a Unix socket with a token."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import grpc

from pharoah_protocol.channels import Access, AccessError, AccessFiles, SettingNames
from pharoah_serving.errors import ProviderError
from pharoah_system.local_sockets import PROVIDER_SOCKET, SCHEME, find_socket

MAX_LISTING_BYTES = 64 << 20
"""A listing comes in one message, whatever its length; gRPC's own limit is 4 MiB."""
DEFAULT_PORT = "127.0.0.1:7443"
"""Where a caller with a certificate looks for the provider."""


def operator_channel(access: Access, largest_bytes: int = MAX_LISTING_BYTES) -> grpc.Channel:
    """A blocking channel for the calls of an operator, whose answers have at most so many bytes."""
    return access.channel(("grpc.max_receive_message_length", largest_bytes))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where the provider is and who calls."""
    environ = os.environ
    where = "the provider: unix:/path of its socket, or HOST:PORT with a certificate (default: its socket)"
    parser.add_argument("--endpoint", default=environ.get("PHAROAH_ENDPOINT", ""), metavar="ADDRESS", help=where)
    files = {
        "--ca": ("PHAROAH_CA_FILE", "certificates of the authority that signs the provider's certificate"),
        "--cert": ("PHAROAH_CERT_FILE", "our certificate"),
        "--cert-key": ("PHAROAH_CERT_KEY_FILE", "the key of our certificate"),
        "--token-file": ("PHAROAH_TOKEN_FILE", "our token, instead of a certificate; for a Unix socket only"),
    }
    for option, (variable, what) in files.items():
        parser.add_argument(option, type=Path, default=environ.get(variable), metavar="FILE", help=what)
    add_service_users(parser)


def add_service_users(parser: argparse.ArgumentParser) -> None:
    """Add the option that says whose services on this machine are trusted."""
    parser.add_argument("--service-users", default=os.environ.get("PHAROAH_SERVICE_USERS", ""), metavar="USERS",
                        help="who may serve a Unix socket, or a port of this machine, besides root and us; commas "
                        "between them")  # fmt: skip


def access(arguments: argparse.Namespace) -> Access:
    """Raises ProviderError naming the file or the options."""
    files = AccessFiles(
        ca=arguments.ca,
        certificate=arguments.cert,
        key=arguments.cert_key,
        token=arguments.token_file,
        setting_names=SettingNames(ca="--ca", certificate="--cert", key="--cert-key"),
    )
    usual = DEFAULT_PORT if files.name_a_certificate else f"{SCHEME}{find_socket(PROVIDER_SOCKET)}"
    try:
        return Access.from_files(arguments.endpoint or usual, files, arguments.service_users)
    except AccessError as error:
        raise ProviderError(str(error)) from None
