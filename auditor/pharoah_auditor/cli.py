"""`pharoah-auditor`: cosign a provider's log, replay its epochs, verify evidence, hold the second pseudonym key."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_auditor.pseudonym_service import PseudonymServiceSettings, serve_pseudonyms
from pharoah_auditor.replay import AuditBundleError, replay
from pharoah_auditor.witness import Witness, serve
from pharoah_protocol.log.checkpoint import CheckpointError, Verifier, log_verifier
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.voprf.libsodium import SodiumMissing
from pharoah_serving.errors import ProviderError
from pharoah_serving.listener import Tls
from pharoah_serving.quotas import Limits


class UsageError(Exception):
    """A file or key that cannot be used; the message names it."""


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code: 0, 1 when a check failed or something went wrong, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="pharoah-auditor", description="Pharoah for a party that is neither tenant nor provider."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_checks(commands)
    _add_witness(commands)
    _add_pseudonyms(commands)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (UsageError, AuditBundleError, ProviderError, SodiumMissing, OSError) as error:
        print(f"pharoah-auditor: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 1


def entry() -> None:
    """The console script `pharoah-auditor`."""
    sys.exit(main())


def _add_checks(commands: Any) -> None:
    again = commands.add_parser("replay", help="seal and learn an epoch again from the provider's audit bundle")
    again.add_argument("file", type=Path, help="the audit bundle, as pharoah-provider writes it")
    again.add_argument("--seen", type=Path, metavar="FILE",
                       help="a checkpoint that others were shown, or a tenant's kept answer")  # fmt: skip
    again.set_defaults(run=_replay)
    verify = commands.add_parser("verify", help="print what a tenant's evidence proves")
    verify.add_argument("file", type=Path, help="evidence, as the tenant's sidecar wrote it")
    verify.set_defaults(run=_verify)
    for command in (again, verify):
        command.add_argument("--provider-key", type=Path, required=True, metavar="FILE",
                             help="the provider's public key, hexadecimal")  # fmt: skip


def _add_witness(commands: Any) -> None:
    witness = commands.add_parser("witness", help="cosign a provider's log as long as it only grows")
    witness.add_argument("--name", required=True, help="e.g. witness.example.org/pharoah")
    witness.add_argument("--listen", default="127.0.0.1:7490", metavar="HOST:PORT", help="default: %(default)s")
    witness.add_argument("--folder", type=Path, default=Path("pharoah-witness"),
                         help="for the key and the remembered checkpoints (default: %(default)s)")  # fmt: skip
    witness.add_argument("--provider-key", type=Path, action="append", required=True, metavar="FILE",
                         help="a provider's public key, hexadecimal; may be repeated")  # fmt: skip
    witness.set_defaults(run=_witness)


def _add_pseudonyms(commands: Any) -> None:
    service = commands.add_parser("pseudonyms", help="serve the second of the two pseudonym keys")
    service.add_argument("--listen", default="127.0.0.1:7491", metavar="HOST:PORT", help="default: %(default)s")
    service.add_argument("--folder", type=Path, default=Path("pharoah-pseudonyms"),
                         help="for keys and the audit log (default: %(default)s)")  # fmt: skip
    service.add_argument("--tls-cert", type=Path, help="our certificate (PEM); with --tls-key and --client-ca")
    service.add_argument("--tls-key", type=Path, help="the key of our certificate (PEM)")
    service.add_argument(
        "--client-ca", type=Path, help="certificates of the authority that signs those of tenants (PEM)"
    )
    service.add_argument("--domain", default="pharoah.local", help="SPIFFE trust domain (default: %(default)s)")
    service.add_argument("--tokens", type=Path, help="a token file instead of certificates; on loopback only")
    service.add_argument("--pseudonyms-per-day", type=int, default=Limits.organisation_pseudonyms, metavar="N",
                         help="for one organisation (default: %(default)s)")  # fmt: skip
    service.set_defaults(run=_pseudonyms)


def _replay(arguments: argparse.Namespace) -> int:
    findings = replay(arguments.file, _public(arguments.provider_key), arguments.seen)
    for finding in findings:
        print(f"{'-' if finding.holds is None else 'ok' if finding.holds else 'FAIL':4}  {finding.what}")
    return int(any(finding.holds is False for finding in findings))


def _verify(arguments: argparse.Namespace) -> int:
    try:
        evidence = json.loads(arguments.file.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{arguments.file}: {error}") from None
    try:
        print(f"proven: the provider {prove(evidence, _public(arguments.provider_key)).removeprefix('it ')}")
    except InvalidEvidenceError as error:
        print(f"not proven: {error}")
        return 1
    return 0


def _witness(arguments: argparse.Namespace) -> int:
    arguments.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    host, _, port = arguments.listen.rpartition(":")
    logs: list[Verifier] = [log_verifier(_public(file)) for file in arguments.provider_key]
    try:
        key = _key(arguments.folder / "witness.key")
        witness = Witness(arguments.name, key, logs, arguments.folder / "seen.json")
        server = serve(witness, host, int(port))
    except (CheckpointError, ValueError, OverflowError) as error:
        raise UsageError(str(error)) from None

    def stop(*_: Any) -> None:
        threading.Thread(target=server.shutdown).start()  # it waits for the loop this handler runs in

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    print(f"pharoah-auditor witnesses {len(logs)} logs on http://{host}:{server.server_port}")
    print(f"witness key for providers and tenants: {witness.verifier}", flush=True)
    with server:
        server.serve_forever()
    return 0


def _pseudonyms(arguments: argparse.Namespace) -> int:
    files = (arguments.tls_cert, arguments.tls_key, arguments.client_ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --client-ca belong together")
    arguments.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    chosen = {name: getattr(arguments, name) for name in ("listen", "folder", "domain", "tokens", "pseudonyms_per_day")}
    asyncio.run(serve_pseudonyms(PseudonymServiceSettings(**chosen, tls=Tls(*files) if all(files) else None)))
    return 0


def _key(path: Path) -> Ed25519PrivateKey:
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(Ed25519PrivateKey.generate().private_bytes_raw())
    return Ed25519PrivateKey.from_private_bytes(path.read_bytes())


def _public(path: Path) -> bytes:
    try:
        return read_public_key(path).public_bytes_raw()
    except HeadError as error:
        raise UsageError(str(error)) from None


if __name__ == "__main__":
    entry()
