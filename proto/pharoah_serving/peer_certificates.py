"""Which certificates of callers are still accepted, after gRPC has accepted them when their connection began.

A connection lives longer than trust may last: a certificate can be put on the deny list, and an authority can leave the
bundle. Both files are read again when they change.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from pharoah_serving.errors import ProviderError
from pharoah_system.bounded_reading import UnreadableInput, read_content
from pharoah_system.file_stamps import FileStamp, stamp_of

log = logging.getLogger("pharoah.provider.services")

MAX_REMEMBERED = 4096
"""Certificates whose check is remembered; each connection has one of about a kilobyte."""


class PeerCertificates:
    """Checks certificates against a deny list, and against authorities that have left the bundle since the start."""

    def __init__(self, bundle: Path, deny_list: Path | None) -> None:
        """`bundle` holds the authorities (PEM), `deny_list` a serial number (hexadecimal) a line.

        Raises ProviderError naming the file and the line.
        """
        self._bundle, self._deny_list = bundle, deny_list
        self._denied = _serials(deny_list) if deny_list else frozenset[int]()
        self._authorities = _authorities(bundle)
        self._left: dict[bytes, x509.Certificate] = {}
        """Authorities that have left the bundle, by their encoding."""
        self._stamps = self._stamp()
        self._checked: OrderedDict[bytes, bool] = OrderedDict()

    def accepts(self, pem: bytes) -> bool:
        """Whether a certificate that was accepted once is still accepted."""
        self._refresh()
        if (known := self._checked.get(pem)) is None:
            known = self._checked[pem] = self._check(pem)
            if len(self._checked) > MAX_REMEMBERED:
                self._checked.popitem(last=False)
        return known

    def _check(self, pem: bytes) -> bool:
        try:
            certificate = x509.load_pem_x509_certificate(pem)
        except ValueError:
            return False
        if certificate.serial_number in self._denied:
            return False
        by_one_that_left = any(_has_issued(authority, certificate) for authority in self._left.values())
        return not by_one_that_left or any(
            _has_issued(authority, certificate) for authority in self._authorities.values()
        )

    def _refresh(self) -> None:
        """While a file has a mistake or is missing, what was read before stays in force."""
        if (stamps := self._stamp()) == self._stamps:
            return
        self._stamps = stamps
        try:
            denied = _serials(self._deny_list) if self._deny_list else frozenset[int]()
            authorities = _authorities(self._bundle)
        except ProviderError as error:
            log.error("the certificates that were accepted and denied before stay so: %s", error)
            return
        self._left = {**self._left, **self._authorities}
        self._left = {key: authority for key, authority in self._left.items() if key not in authorities}
        self._denied, self._authorities = denied, authorities
        self._checked.clear()

    def _stamp(self) -> list[FileStamp | None]:
        return [stamp_of(file) for file in (self._bundle, self._deny_list) if file is not None]


def _serials(file: Path) -> frozenset[int]:
    try:
        lines = read_content(file).decode(errors="replace").splitlines()
    except OSError as error:
        raise ProviderError(f"deny list {file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise ProviderError(f"deny list {error}") from None
    found = set()
    for number, line in enumerate(lines, 1):
        if not (text := line.partition("#")[0].strip()):
            continue
        try:
            found.add(int(text.split()[0].replace(":", ""), 16))
        except ValueError:
            raise ProviderError(f"deny list {file}:{number}: expected a serial number in hexadecimal digits") from None
    return frozenset(found)


def _authorities(file: Path) -> dict[bytes, x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(read_content(file))
    except (OSError, ValueError) as error:
        raise ProviderError(f"{file}: not a file of certificates (PEM): {error}") from None
    return {certificate.public_bytes(Encoding.DER): certificate for certificate in found}


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether the authority has signed this certificate itself. Chains are not followed: their inner certificates are
    not known here, and their connections end with their age (`listener.OPTIONS`)."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
