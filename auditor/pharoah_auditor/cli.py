"""`pharoah-auditor`: cosign a provider's log, replay its epochs, verify evidence, hold the second pseudonym key."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_protocol.log.checkpoint import CheckpointError, Verifier, log_verifier
from pharoah_protocol.tables.epoch_head import HeadError, read_public_key
from pharoah_protocol.tables.misbehaviour import InvalidEvidenceError, prove
from pharoah_protocol.vocabulary import Role
from pharoah_serving import token_command
from pharoah_serving.closed_output import end_when_output_is_closed
from pharoah_serving.errors import ProviderError
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.quotas import Limits
from pharoah_serving.time_guard import confirm
from pharoah_system.bounded_reading import UnreadableInput, read_json_file, read_text
from pharoah_system.files import write_atomically
from pharoah_system.standard_streams import say, say_uncaught_errors, show
from pharoah_system.text import sanitize_text
from pharoah_system.trusted_paths import make_folder, private_content

TOKEN_USAGE = {Role.TENANT: "export PHAROAH_AUDITOR_TOKEN_FILE={file}"}
TOKENS = Path("pharoah-auditor-tokens")
"""List of the tenants on this machine."""
SEEN = "seen.json"
"""File with the checkpoints that a witness has cosigned."""
PSEUDONYMS = Path("pharoah-pseudonyms")
"""Folder of the pseudonym service."""
MAX_LINE_LENGTH = 1000
"""Characters of a line of output that may have been written by others."""


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
    _add_token(commands)
    _add_confirm_time(commands)
    arguments = parser.parse_args(argv)
    try:
        with end_when_output_is_closed():
            return int(arguments.run(arguments))
    except (UsageError, ProviderError, UnreadableInput, OSError) as error:
        say(f"pharoah-auditor: {sanitize_text(str(error), MAX_LINE_LENGTH)}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def entry() -> None:
    """The console script `pharoah-auditor`."""
    say_uncaught_errors()
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
    witness.add_argument("--init", action="store_true", help="make the key when there is none; for a first start only")
    witness.set_defaults(run=_witness)


def _add_pseudonyms(commands: Any) -> None:
    service = commands.add_parser("pseudonyms", help="serve the second of the two pseudonym keys")
    service.add_argument("--listen", default="", metavar="ADDRESS",
                         help="HOST:PORT with TLS, else unix:/path (default: auditor.sock in "
                         "$XDG_RUNTIME_DIR/pharoah, for root in /run/pharoah; 127.0.0.1:7491 with TLS)")  # fmt: skip
    service.add_argument("--socket-group", default="", metavar="GROUP",
                         help="whose members may connect to the Unix socket (default: its owner alone)")  # fmt: skip
    service.add_argument("--folder", type=Path, default=PSEUDONYMS,
                         help="for keys and the audit log (default: %(default)s)")  # fmt: skip
    service.add_argument("--tls-cert", type=Path, help="our certificate (PEM); with --tls-key and --client-ca")
    service.add_argument("--tls-key", type=Path, help="the key of our certificate (PEM)")
    service.add_argument(
        "--client-ca", type=Path, help="certificates of the authority that signs those of tenants (PEM)"
    )
    service.add_argument("--deny-list", type=Path,
                         help="file of serial numbers of certificates that are not accepted any more")  # fmt: skip
    service.add_argument(
        "--init", action="store_true", help="make the keys when there are none; for a first start only"
    )
    service.add_argument("--domain", default="pharoah.local", help="SPIFFE trust domain (default: %(default)s)")
    service.add_argument("--tokens", type=Path, default=TOKENS,
                         help="list of tokens, without TLS (default: %(default)s)")  # fmt: skip
    service.add_argument("--pseudonyms-per-day", type=int, default=Limits.organisation_pseudonyms, metavar="N",
                         help="for one organisation (default: %(default)s)")  # fmt: skip
    service.set_defaults(run=_pseudonyms)


def _add_token(commands: Any) -> None:
    token = commands.add_parser("token", help="make a token for a tenant on this machine, or revoke one")
    token_command.add_options(token, TOKEN_USAGE, TOKENS)
    token.set_defaults(run=_token)


def _add_confirm_time(commands: Any) -> None:
    what = "confirm that the time of this machine is right, after its clock has jumped"
    command = commands.add_parser("confirm-time", help=what)
    read = "that of the pseudonym service, which reads it within a minute (default: %(default)s)"
    command.add_argument("--folder", type=Path, default=PSEUDONYMS, help=read)
    command.set_defaults(run=_confirm_time)


def _replay(arguments: argparse.Namespace) -> int:
    from pharoah_auditor.replay import AuditBundleError, replay  # here: it learns again, and brings scipy
    from pharoah_protocol.voprf.libsodium import SodiumMissing

    try:
        findings = replay(arguments.file, _public(arguments.provider_key), arguments.seen)
    except (AuditBundleError, SodiumMissing) as error:
        raise UsageError(str(error)) from None
    for finding in findings:
        result = "-" if finding.holds is None else "ok" if finding.holds else "FAIL"
        show(f"{result:4}  {sanitize_text(finding.what, MAX_LINE_LENGTH)}")
    return int(any(finding.holds is False for finding in findings))


def _verify(arguments: argparse.Namespace) -> int:
    try:
        evidence = read_json_file(arguments.file)
    except OSError as error:
        raise UsageError(f"{arguments.file}: {error.strerror}") from None
    except UnreadableInput as error:
        raise UsageError(str(error)) from None
    try:
        show(f"proven: the provider {prove(evidence, _public(arguments.provider_key)).removeprefix('it ')}")
    except InvalidEvidenceError as error:
        show(f"not proven: {sanitize_text(str(error), MAX_LINE_LENGTH)}")
        return 1
    return 0


def _witness(arguments: argparse.Namespace) -> int:
    logs: list[Verifier] = [log_verifier(_public(file)) for file in arguments.provider_key]
    folder: Path = arguments.folder
    if not arguments.init and not folder.exists():
        raise UsageError(f"{folder}: there is no such folder. Mount or restore it; for a first start, add --init")
    with FolderLock(folder, "witness"):
        return _cosign(arguments, logs)


def _cosign(arguments: argparse.Namespace, logs: list[Verifier]) -> int:
    """Run the witness of a locked folder: two processes would cosign two trees."""
    from pharoah_auditor.witness import Witness, serve

    host, _, port = arguments.listen.rpartition(":")
    try:
        key = _witness_key(arguments.folder, init=arguments.init)
        witness = Witness(arguments.name, key, logs, arguments.folder / SEEN)
        server = serve(witness, host, int(port))
    except (CheckpointError, ValueError, OverflowError) as error:
        raise UsageError(str(error)) from None

    def stop(*_: Any) -> None:
        threading.Thread(target=server.shutdown).start()  # it waits for the loop this handler runs in

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    show(f"pharoah-auditor witnesses {len(logs)} logs on http://{host}:{server.server_port}")
    show(f"witness key for providers and tenants: {witness.verifier}", flush=True)
    with server:
        server.serve_forever()
    return 0


def _pseudonyms(arguments: argparse.Namespace) -> int:
    from pharoah_auditor.pseudonym_service import PseudonymServiceSettings, serve_pseudonyms
    from pharoah_protocol.voprf.libsodium import SodiumMissing
    from pharoah_serving.listener import Tls

    files = (arguments.tls_cert, arguments.tls_key, arguments.client_ca)
    if any(files) and not all(files):
        raise UsageError("--tls-cert, --tls-key and --client-ca belong together")
    make_folder(arguments.folder)
    names = ("listen", "socket_group", "folder", "domain", "tokens", "pseudonyms_per_day", "deny_list", "init")
    chosen = {name: getattr(arguments, name) for name in names}
    try:
        asyncio.run(serve_pseudonyms(PseudonymServiceSettings(**chosen, tls=Tls(*files) if all(files) else None)))
    except SodiumMissing as error:
        raise UsageError(str(error)) from None
    return 0


def _token(arguments: argparse.Namespace) -> int:
    show("\n".join(token_command.change(arguments, TOKEN_USAGE)))
    return 0


def _confirm_time(arguments: argparse.Namespace) -> int:
    from pharoah_auditor.pseudonym_service import KEYS

    folder, now = arguments.folder / KEYS, time.time()
    try:
        confirm(folder, now)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from None
    show(f"confirmed: it is {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC")
    return 0


def _witness_key(folder: Path, *, init: bool) -> Ed25519PrivateKey:
    """The key of a witness, made together with its memory: a key without its memory would cosign a second history.

    Raises UsageError for one without the other.
    """
    key, seen = folder / "witness.key", folder / SEEN
    if init and not key.exists() and (not seen.exists() or read_text(seen) == "{}"):  # a crash was in between
        write_atomically(seen, "{}", durable=True)
        write_atomically(key, Ed25519PrivateKey.generate().private_bytes_raw(), durable=True)
    for path in (key, seen):
        if not path.exists():
            raise UsageError(
                f"{path} is missing. Mount or restore the whole folder, or start with a new one and --init"
            )
    return Ed25519PrivateKey.from_private_bytes(private_content(key))


def _public(path: Path) -> bytes:
    try:
        return read_public_key(path).public_bytes_raw()
    except HeadError as error:
        raise UsageError(str(error)) from None


if __name__ == "__main__":
    entry()
