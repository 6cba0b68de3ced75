"""Certificates for a small site: an authority of its own, and SPIFFE names as the provider reads them.

Sites with SPIRE, Vault or a company authority do not need this: any certificate with one SPIFFE name works.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pharoah_protocol.files import write_atomically
from pharoah_serving.errors import ProviderError

AUTHORITY_DAYS, CERTIFICATE_DAYS = 3650, 365


class CertificateFiles(NamedTuple):
    """Files of one certificate (PEM)."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority in a folder: `ca.pem` for everybody, `ca.key` for its owner."""

    def __init__(self, folder: Path, domain: str) -> None:
        """Open the folder, or make a new authority in it. Raises ProviderError."""
        self.folder, self._domain = folder, domain
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not (folder / "ca.pem").exists():
                self._make()
            self._certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ProviderError(f"{folder}: not the folder of an authority ({error})") from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def issue(self, name: str, hosts: tuple[str, ...] = ()) -> CertificateFiles:
        """Make a certificate and a key for `tenant/ORG/ACCOUNT`, `agent/NODE`, `operator/NAME` or `provider`.

        `hosts` are names or addresses under which a provider is reached.
        """
        stem = self.folder / name.replace("/", "-")
        key = ec.generate_private_key(ec.SECP256R1())
        uri = x509.UniformResourceIdentifier(f"spiffe://{self._domain}/{name}")
        names = x509.SubjectAlternativeName([uri, *map(_host, hosts)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            _builder(name.replace("/", " "), self._certificate.subject, key, CERTIFICATE_DAYS)
            .add_extension(names, critical=False)
            .add_extension(usage, critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = CertificateFiles(certificate=stem.with_name(f"{stem.name}.pem"), key=stem.with_name(f"{stem.name}.key"))
        _write(files.key, _private(key), 0o600)
        _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return files

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Pharoah authority of {self._domain}")])
        certificate = (
            _builder(f"Pharoah authority of {self._domain}", subject, key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(_signs_certificates(), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(self.folder / "ca.key", _private(key), 0o600)
        _write(self.folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _builder(name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


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
        return x509.DNSName(name)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, mode: int) -> None:
    write_atomically(path, content, mode=mode)
