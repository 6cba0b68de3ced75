"""How agents and operators reach the provider: with a certificate, or on loopback with a token."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import grpc

from pharoah_serving.errors import ProviderError

Metadata = tuple[tuple[str, str], ...]
OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 64 << 20)]


@dataclass(frozen=True)
class Access:
    """An address, and who we are there."""

    endpoint: str
    token: str = ""
    credentials: grpc.ChannelCredentials | None = None

    @property
    def metadata(self) -> Metadata:
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self) -> grpc.Channel:
        if self.credentials is None:
            return grpc.insecure_channel(self.endpoint, OPTIONS)
        return grpc.secure_channel(self.endpoint, self.credentials, OPTIONS)


def add_options(parser: argparse.ArgumentParser) -> None:
    environ = os.environ
    parser.add_argument("--endpoint", default=environ.get("PHAROAH_ENDPOINT", "127.0.0.1:7443"), metavar="HOST:PORT")
    files = {
        "--ca": ("PHAROAH_CA_FILE", "who signs the provider's certificate"),
        "--cert": ("PHAROAH_CERT_FILE", "our certificate"),
        "--cert-key": ("PHAROAH_CERT_KEY_FILE", "its key"),
        "--token-file": ("PHAROAH_TOKEN_FILE", "a token instead, on loopback"),
    }
    for option, (variable, what) in files.items():
        parser.add_argument(option, type=Path, default=environ.get(variable), metavar="FILE", help=what)


def access(arguments: argparse.Namespace) -> Access:
    """Raises ProviderError naming the file."""
    files = (arguments.ca, arguments.cert_key, arguments.cert)
    if not any(files):
        token = _read(arguments.token_file).decode().strip() if arguments.token_file else ""
        return Access(arguments.endpoint, token)
    if not all(files):
        raise ProviderError("--ca, --cert and --cert-key belong together")
    return Access(arguments.endpoint, credentials=grpc.ssl_channel_credentials(*map(_read, files)))


def _read(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ProviderError(f"{path}: {error.strerror}") from None
