"""Certificates for a small site: an authority of its own, SPIFFE names as the provider reads them, and a deny list.

Sites with SPIRE, Vault or a company authority do not need this. Their callers need one SPIFFE name, and their servers
the DNS name of their role (`channels.ServerRole`).
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pharoah_protocol.channels import ServerRole
from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import parse_json
from pharoah_system.files import open_append, write_atomically
from pharoah_system.trusted_paths import make_folder, own_content

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 90
"""Nothing ends the certificate of a lost machine but its age and the deny list. Let's Encrypt issues for 90 days."""
ISSUED, DENIED = "issued.jsonl", "denied"
"""Files of an authority's folder: one line for each certificate, and the deny list for `serve --deny-list`."""
MAX_COMMON_NAME_LENGTH = 64
"""Bytes of a common name in a certificate (RFC 5280, ub-common-name). Nobody is known by it: callers have a SPIFFE
name, and servers the DNS name of their role."""
_HOST = re.compile(r"(\*|[\w-]+)(\.[\w-]+)*\.?", re.ASCII)
"""Names that a certificate can hold: labels of ASCII letters, digits, `-` and `_`, or `*` as the first one."""


class CertificateFiles(NamedTuple):
    """Files of one certificate (PEM)."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class IssuedCertificate:
    """One line of the list of issued certificates."""

    name: str
    serial: str
    """In hexadecimal digits."""
    not_after: float
    """Unix seconds."""


class Authority:
    """A certificate authority in a folder: `ca.pem` for everybody, `ca.key` for its owner."""

    def __init__(self, folder: Path, domain: str) -> None:
        """Open the folder, or make a new authority in it. Raises ProviderError."""
        self.folder, self._domain = folder, domain
        try:
            make_folder(folder)
        except OSError as error:
            raise ProviderError(f"{folder}: {error.strerror}") from None
        try:
            if not (folder / "ca.pem").exists():
                self._make()
            self._certificate = x509.load_pem_x509_certificate(own_content(folder / "ca.pem"))
            key = serialization.load_pem_private_key(own_content(folder / "ca.key"), None)
        except (OSError, ValueError) as error:
            raise ProviderError(f"{folder}: not the folder of an authority ({error})") from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def issue(self, name: str, hosts: tuple[str, ...] = (), days: int = CERTIFICATE_DAYS) -> CertificateFiles:
        """Make a certificate and a key for `provider`, `auditor`, `tenant/ORG[/ACCOUNT]`, `agent/NODE` or
        `operator/NAME`. The first two serve and cannot call; the others call and cannot serve.

        `hosts` are further names or addresses of a server, for clients that are not ours. Raises OSError, and
        ProviderError for a host that is neither a name nor an address.
        """
        stem = self.folder / _stem(name)
        key = ec.generate_private_key(ec.SECP256R1())
        uri = x509.UniformResourceIdentifier(f"spiffe://{self._domain}/{name}")
        serves = name in tuple(ServerRole)
        roles = [x509.DNSName(ServerRole(name).server_name)] if serves else []
        names = x509.SubjectAlternativeName([uri, *roles, *map(_host, hosts)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            _builder(name.replace("/", " "), self._certificate.subject, key, days)
            .add_extension(names, critical=False)
            .add_extension(usage, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = CertificateFiles(certificate=stem.with_name(f"{stem.name}.pem"), key=stem.with_name(f"{stem.name}.key"))
        self._note(
            IssuedCertificate(name, f"{certificate.serial_number:x}", certificate.not_valid_after_utc.timestamp())
        )
        _write(files.key, _private(key), 0o600)
        _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return files

    def deny(self, name: str) -> int:
        """Put all certificates of a name that are still valid on the deny list; returns how many. Raises OSError, and
        ProviderError for a damaged list of issued certificates."""
        now, file = datetime.datetime.now(datetime.UTC).timestamp(), self.folder / DENIED
        valid = [one for one in self._issue() if one.name == name and one.not_after > now]
        before = file.read_text() if file.exists() else ""
        added = "".join(f"{one.serial}  # {one.name}\n" for one in valid if one.serial not in before.split())
        _write(file, (before + added).encode(), 0o644)
        return len(valid)

    def _note(self, issued: IssuedCertificate) -> None:
        with os.fdopen(open_append(self.folder / ISSUED), "w") as lines:
            lines.write(json.dumps(asdict(issued)) + "\n")

    def _issue(self) -> Iterator[IssuedCertificate]:
        file = self.folder / ISSUED
        for row, line in enumerate(own_content(file).decode(errors="replace").splitlines() if file.exists() else (), 1):
            try:
                yield IssuedCertificate(**parse_json(line, file))
            except (ValueError, TypeError):
                raise ProviderError(f"{file}: row {row} is no issued certificate") from None

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = f"Pharoah authority of {self._domain}"
        certificate = (
            _builder(name, _subject(name), key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_signs_certificates(), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(self.folder / "ca.key", _private(key), 0o600)
        _write(self.folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _stem(name: str) -> str:
    """The name of the files of a certificate, which no other certificate has: a dash inside a part is doubled, and no
    part begins with one."""
    return "-".join(part.replace("-", "--") for part in name.split("/"))


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    """The name, cut where it is too long for a certificate."""
    cut = name.encode()[:MAX_COMMON_NAME_LENGTH].decode(errors="ignore")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cut)])


def _signs_certificates() -> x509.KeyUsage:
    no = dict.fromkeys(
        (
            "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
            "decipher_only", "digital_signature",
        ),
        False,
    )  # fmt: skip
    return x509.KeyUsage(key_cert_sign=True, crl_sign=True, **no)


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not _HOST.fullmatch(name):
            raise ProviderError(f"host {name}: expected a name or an address; write other letters as xn--") from None
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    write_atomically(path, content, mode=mode)
