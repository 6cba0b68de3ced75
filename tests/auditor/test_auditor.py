"""The auditor: its witness, and the replay of epochs from audit bundles."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_auditor.cli import main
from pharoah_auditor.pseudonym_service import KEYS
from pharoah_auditor.replay import AuditBundleError, replay
from pharoah_auditor.witness import Refusal, Witness, serve
from pharoah_learning.evidence import LeftOut
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.portable_table import PortableTable, write_table
from pharoah_learning.release import ClassKey, LearnedRow, Release, SealInputs, Suspect
from pharoah_learning.sealing import seal
from pharoah_learning.table import learn_table
from pharoah_protocol.log.checkpoint import Checkpoint, Note, log_verifier, sign
from pharoah_protocol.log.merkle import Frontier, consistency_proof, leaf_hash
from pharoah_protocol.log.view import HEAD, Entry
from pharoah_protocol.monitoring_plan import RESTLESS
from pharoah_protocol.vocabulary import Grade, Outcome, RowKind, Severity
from pharoah_provider.transparency_log import TransparencyLog
from pharoah_provider.transparency_log import Witness as Handle
from pharoah_provider.witnesses import read_witnesses
from pharoah_serving.time_guard import TimeGuard
from tests.harness.clock import SimulatedClock
from tests.harness.version_trials import Planted, version_trials
from tests.provider_service.test_learning import memory_incompatibility

KEY, WITNESS_KEY = (Ed25519PrivateKey.from_private_bytes(bytes([i]) * 32) for i in (1, 2))
PUBLIC = KEY.public_key().public_bytes_raw()
LOG = log_verifier(PUBLIC)
ENTRIES = [Entry.from_body(HEAD, number, b"body").encode() for number in range(1, 9)]
OTHERS = [Entry.from_body(HEAD, number, b"other").encode() for number in range(1, 9)]


def note(entries: list[bytes], key: Ed25519PrivateKey = KEY) -> Note:
    return sign(Checkpoint(LOG.name, len(entries), Frontier().add(*entries).root), key)


def request(old: int, entries: list[bytes], **changes: Any) -> bytes:
    proof = consistency_proof([leaf_hash(entry) for entry in entries], old) if old <= len(entries) else []
    note_of: Note = changes.get("note") or note(entries)
    lines = [f"old {old}", *(base64.b64encode(part).decode() for part in changes.get("proof", proof))]
    return "\n".join(lines).encode() + b"\n\n" + note_of.encode()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness("w.example", WITNESS_KEY, [LOG], tmp_path / "seen.json")


def cosigned(witness: Witness, body: bytes, entries: list[bytes], now: int = 7) -> int | None:
    answer = witness.add_checkpoint(body, now)
    return Note.decode(note(entries).checkpoint.body + b"\n" + answer).find_cosign_time(witness.verifier)


def status(witness: Witness, body: bytes) -> HTTPStatus:
    with pytest.raises(Refusal) as caught:
        witness.add_checkpoint(body, 7)
    return caught.value.status


def test_a_witness_follows_a_log_that_grows(witness: Witness) -> None:
    assert cosigned(witness, request(0, ENTRIES[:3]), ENTRIES[:3]) == 7
    assert cosigned(witness, request(3, ENTRIES[:3]), ENTRIES[:3], 8) == 8, "the same again, at another time"
    assert cosigned(witness, request(3, ENTRIES), ENTRIES) == 7


def test_a_witness_does_not_follow_another_history(witness: Witness, tmp_path: Path) -> None:
    witness.add_checkpoint(request(0, ENTRIES[:3]), 7)
    assert status(witness, request(3, OTHERS)) is HTTPStatus.UNPROCESSABLE_ENTITY
    assert status(witness, request(3, OTHERS[:3])) is HTTPStatus.CONFLICT
    assert status(witness, request(0, OTHERS)) is HTTPStatus.CONFLICT
    assert status(witness, request(3, ENTRIES[:2])) is HTTPStatus.BAD_REQUEST
    again = Witness("w.example", WITNESS_KEY, [LOG], tmp_path / "seen.json")
    assert status(again, request(0, OTHERS)) is HTTPStatus.CONFLICT, "also after a restart"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", HTTPStatus.BAD_REQUEST),
        (b"old -1\n\n", HTTPStatus.BAD_REQUEST),
        (b"old 0\n!!!\n\n" + note(ENTRIES).encode(), HTTPStatus.BAD_REQUEST),
        (b"old 0\n" + b"AAAA\n" * 70 + b"\n" + note(ENTRIES).encode(), HTTPStatus.BAD_REQUEST),
        (request(0, ENTRIES, note=note(ENTRIES, WITNESS_KEY)), HTTPStatus.FORBIDDEN),
        (request(0, ENTRIES, note=sign(Checkpoint("other", 8, bytes(32)), KEY)), HTTPStatus.NOT_FOUND),
        (request(0, ENTRIES, proof=[bytes(32)]), HTTPStatus.UNPROCESSABLE_ENTITY),
    ],
)
def test_other_bytes_than_a_checkpoint_of_a_known_log_are_refused(
    witness: Witness, body: bytes, expected: HTTPStatus
) -> None:
    assert status(witness, body) is expected


@contextmanager
def served(witness: Witness) -> Iterator[str]:
    server = serve(witness, "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_provider_is_cosigned_over_http_also_by_a_witness_that_is_ahead(witness: Witness, tmp_path: Path) -> None:
    """After a restart the provider does not know the size that the witness has seen; the witness answers with it."""
    with served(witness) as url:
        (tmp_path / "witnesses").write_text(f"# ours\n{witness.verifier} {url}\n")
        for restart in range(2):
            log = TransparencyLog(ENTRIES[: 2 + restart], KEY, read_witnesses(tmp_path / "witnesses"))
            asyncio.run(log.serve(log.view))
            assert Note.decode(log.checkpoint).find_cosign_time(witness.verifier) is not None
            asyncio.run(log.serve(log.append(ENTRIES[2 + restart])))
            assert Note.decode(log.checkpoint).checkpoint.size == 3 + restart
            assert Note.decode(log.checkpoint).find_cosign_time(witness.verifier) is not None
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}/other", b"x", timeout=5)


def test_cosignatures_outlive_a_restart_while_the_witness_is_away(witness: Witness, tmp_path: Path) -> None:
    with served(witness) as url:
        (tmp_path / "witnesses").write_text(f"{witness.verifier} {url}\n")
        log = TransparencyLog(ENTRIES[:2], KEY, read_witnesses(tmp_path / "witnesses"))
        asyncio.run(log.serve(log.view))
    away = read_witnesses(tmp_path / "witnesses")
    again = TransparencyLog(ENTRIES[:2], KEY, away, log.checkpoint)
    asyncio.run(again.serve(again.view))
    assert Note.decode(again.checkpoint).find_cosign_time(
        witness.verifier
    ) is not None and again.cosigned_seconds_ago == float("inf")
    other = TransparencyLog(ENTRIES[:3], KEY, away, log.checkpoint)
    assert Note.decode(other.checkpoint).find_cosign_time(witness.verifier) is None


def test_a_witness_that_is_away_holds_nothing_up(tmp_path: Path, witness: Witness) -> None:
    (tmp_path / "witnesses").write_text(f"{witness.verifier} http://127.0.0.1:9\n")
    log = TransparencyLog(ENTRIES[:1], KEY, read_witnesses(tmp_path / "witnesses"))
    asyncio.run(log.serve(log.append(ENTRIES[1])))
    assert log.view.epoch == 2 and Note.decode(log.checkpoint).find_cosign_time(witness.verifier) is None


def test_a_witness_that_never_ends_its_answer_holds_nothing_up(
    tmp_path: Path, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pharoah_provider.transparency_log.WITNESS_SECONDS", 0.2)
    over, asked = threading.Event(), list[int]()

    def drips(*_: Any) -> Any:
        asked.append(1)
        over.wait(30)
        raise ValueError("not a cosignature")

    async def work() -> None:
        log = TransparencyLog(ENTRIES[:1], KEY, [Handle(witness.verifier, drips)])
        for entry in ENTRIES[1:4]:
            await log.serve(log.append(entry))
        assert log.view.frontier.size == 4 and asked == [1], "no second thread waits for it"
        over.set()

    asyncio.run(work())


# replay

TRIALS = memory_incompatibility(5, 25)
ROWS = learn_plans(learn_incompatibilities(TRIALS), TRIALS)
ROWS += learn_near_duplicates(ROWS, TRIALS)


def audit_bundle(folder: Path, rows: tuple[LearnedRow, ...], **changes: Any) -> Path:
    groups = tuple(sorted({ClassKey(row.scope, row.group_id) for row in rows}))
    recipe = SealInputs(4, Release(2, rows, suspects=changes.pop("suspects", ())), groups, 1000)
    epoch = seal(recipe, b"s" * 32, KEY)
    content = {
        "format": 6,
        "epoch": 4,
        "seed": (b"s" * 32).hex(),
        "began": 1000,
        "groups": groups,
        "head": epoch.body.hex(),
        "signature": epoch.signature.hex(),
        "release": asdict(recipe.release),
        "trials": [asdict(trial) for trial in TRIALS],
        "learned_at": 1000.0,
        "forgotten": [],
        "imported": [],
        "log": [Entry.from_body(HEAD, 4, epoch.body).encode().hex()],
        **changes,
    }
    file = folder / "audit-bundle.json"
    file.write_text(json.dumps(content))
    return file


def failing(file: Path, seen: Path | None = None) -> str:
    return "; ".join(finding.what for finding in replay(file, PUBLIC, seen) if finding.holds is False)


def test_an_honest_epoch_replays(tmp_path: Path) -> None:
    assert failing(audit_bundle(tmp_path, tuple(ROWS))) == ""


def test_a_log_that_nobody_else_has_seen_is_found(tmp_path: Path) -> None:
    """A provider that has served one epoch and puts another into the bundle."""
    file, kept = audit_bundle(tmp_path, tuple(ROWS)), tmp_path / "kept"
    entries = [bytes.fromhex(entry) for entry in json.loads(file.read_text())["log"]]
    kept.write_bytes(TransparencyLog(entries, KEY).checkpoint)
    assert failing(file, kept) == ""
    kept.write_text(json.dumps({"checkpoint": kept.read_text()}))
    assert failing(file, kept) == "", "a tenant's kept answer is accepted as well"
    for others in (ENTRIES[3:4], [*entries, ENTRIES[7]]):
        kept.write_bytes(TransparencyLog(others, KEY).checkpoint)
        assert "the log is NOT the one" in failing(file, kept)
    for broken in ("", "{}", kept.read_text().replace("pharoah", "other")):
        kept.write_text(broken)
        with pytest.raises(AuditBundleError, match="not a checkpoint"):
            replay(file, PUBLIC, kept)
    assert [finding.what for finding in replay(file, PUBLIC) if finding.holds is None] == [
        "it was not checked whether others were shown this log (--seen FILE)"
    ]


def test_a_log_that_no_honest_provider_has_hides_no_other_finding(tmp_path: Path) -> None:
    """Also where others were shown the same log."""
    entries, kept = [ENTRIES[0], OTHERS[0]], tmp_path / "kept"
    kept.write_bytes(note(entries).encode())
    file = audit_bundle(tmp_path, tuple(ROWS[1:]), log=[entry.hex() for entry in entries])
    failed = failing(file, kept)
    assert "an entry that an honest log never has" in failed and "rows that follow from the trials" in failed
    assert "the log is the one of the checkpoint of 2 entries" in [
        finding.what for finding in replay(file, PUBLIC, kept)
    ]


def test_sub_archetypes_and_expanded_rows_are_learned_again(tmp_path: Path) -> None:
    same = {version: Planted() for version in ("4.9.0", "4.10.0", "4.11.0")}
    trials = version_trials({**same, "4.12.0": Planted(1.5)}, only={"4.10.0": ("b",)})
    table = learn_table(trials, LeftOut())
    rows, learned = (*table.rows, *table.expanded, *table.bands), [asdict(trial) for trial in trials]
    release = Release(2, rows, sub_archetypes=table.versions.sub_archetypes, version_changes=table.versions.changes)
    assert table.expanded

    def failed(changed: Release, kept: tuple[LearnedRow, ...] = rows) -> str:
        changed = replace(changed, rows=kept)
        return failing(audit_bundle(tmp_path, kept, trials=learned, release=asdict(changed)))

    assert failed(release) == ""
    expanded = len(table.expanded)
    assert f"{expanded} rows that follow from the trials were left out" in failed(release, (*table.rows, *table.bands))
    one, *others = release.sub_archetypes
    other = replace(release, sub_archetypes=(replace(one, stability=0.5), *others))
    assert "do NOT follow" in failed(other)
    assert (
        failed(replace(release, sub_archetypes=(), version_changes=(), format=3), (*table.rows, *table.bands)) == ""
    ), "a release of format 3 has none"


def test_rows_about_pseudonyms_never_block_and_tables_without_a_trial_are_reported(tmp_path: Path) -> None:
    name = replace(ROWS[0], kind=RowKind.PSEUDONYM, tokens=("period=1", "name=ab"), severity=Severity.BLOCK)
    assert "1 of them block" in failing(audit_bundle(tmp_path, (*ROWS, name)))
    extra = replace(ROWS[0], group_id="made for one tenant")
    failed = [finding.what for finding in replay(audit_bundle(tmp_path, (*ROWS, extra)), PUBLIC) if not finding.holds]
    assert any(
        what.startswith("1 of") and what.endswith("tables are about machines without a trial") for what in failed
    )


def test_probe_rows_and_rows_left_out_are_found(tmp_path: Path) -> None:
    guess = replace(ROWS[0], tokens=("archetype=guessed",))
    assert "1 of" in failing(audit_bundle(tmp_path, (*ROWS, guess)))
    assert "1 rows that follow from the trials were left out" in failing(audit_bundle(tmp_path, tuple(ROWS[1:])))
    bad = next(row for row in ROWS if row.severity != "ok")
    rosier = tuple(replace(row, failures=0, severity=Severity.OK) if row is bad else row for row in ROWS)
    assert "1 of" in failing(audit_bundle(tmp_path, rosier))
    stronger = tuple(replace(row, grade=Grade.ASSOCIATION) if row is bad else row for row in ROWS)
    assert bad.grade is Grade.MATCHED and "1 of" in failing(audit_bundle(tmp_path, stronger))
    marked = tuple(replace(row, plan=RESTLESS.pack().hex()) if row is bad else row for row in ROWS)
    assert "1 monitoring plans are shared by fewer than 5" in failing(audit_bundle(tmp_path, marked))


def test_suspects_that_no_trial_shows_are_found(tmp_path: Path) -> None:
    invented = Suspect(
        node="n9",
        context_id="large",
        device_id="cpu",
        outcome=Outcome.CRASH,
        failures=3,
        runs=3,
        title="gpt",
        refuting=1,
    )
    assert "1 suspects are not those" in failing(audit_bundle(tmp_path, tuple(ROWS), suspects=(invented,)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seed": (b"t" * 32).hex()}, "NOT"),
        ({"began": 2000}, "NOT"),
        ({"signature": bytes(64).hex()}, "signed"),
        ({"log": []}, "NOT in the log"),
        ({"log": [entry.hex() for entry in (ENTRIES[0], OTHERS[0])]}, "honest"),
    ],
)
def test_another_seed_time_signature_or_log_is_found(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    assert expected in failing(audit_bundle(tmp_path, tuple(ROWS), **changes))


def test_the_command_prints_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = tmp_path / "provider.pub"
    key.write_text(PUBLIC.hex())
    assert main(["replay", str(audit_bundle(tmp_path, tuple(ROWS))), "--provider-key", str(key)]) == 0
    assert "seal to the roots" in capsys.readouterr().out
    assert main(["replay", str(audit_bundle(tmp_path, tuple(ROWS[1:]))), "--provider-key", str(key)]) == 1
    assert "FAIL" in capsys.readouterr().out
    other = tmp_path / "other.pub"
    other.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
    assert main(["replay", str(audit_bundle(tmp_path, tuple(ROWS))), "--provider-key", str(other)]) == 1
    printed = capsys.readouterr().out
    assert "not signed by this key" in printed and "ok " not in printed
    with pytest.raises(AuditBundleError, match="format 3, expected 6"):
        replay(audit_bundle(tmp_path, tuple(ROWS), format=3), PUBLIC)
    (tmp_path / "broken").write_text("{}")
    for command in ("replay", "verify"):
        assert main([command, str(tmp_path / "broken"), "--provider-key", str(key)]) == 1
    assert main(["replay", str(tmp_path / "broken"), "--provider-key", str(tmp_path / "nothing")]) == 1
    assert "broken" in (printed := capsys.readouterr().err) and "nothing" in printed


def test_what_a_bundle_says_is_one_printable_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a name could erase the line above it on the auditor's terminal."""
    key = tmp_path / "provider.pub"
    key.write_text(PUBLIC.hex())
    content = write_table(PortableTable(7, 1000.0, {}, ()), KEY)
    imported = [{"provider": name, "key": PUBLIC.hex(), "content": content} for name in ("a\x1b[1A\x1b[2K\n", 5)]
    file = audit_bundle(tmp_path, tuple(ROWS), imported=imported)
    assert main(["replay", str(file), "--provider-key", str(key)]) == 0
    printed = capsys.readouterr().out
    assert "other providers (5, a?[1A?[2K?), signed by them" in printed
    assert all(line.isprintable() for line in printed.splitlines())
    file.write_text(json.dumps({"format": "\x1b[1A"}))
    assert main(["replay", str(file), "--provider-key", str(key)]) == 1
    assert capsys.readouterr().err.rstrip("\n").isprintable()


def test_the_time_of_the_pseudonym_service_is_confirmed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / KEYS).mkdir(mode=0o700)
    clock = SimulatedClock(error=-7200.0)
    guard = TimeGuard(clock.clock, tmp_path / KEYS)
    clock.error = 0.0
    assert guard.jumped, "its clock was two hours behind before"
    assert main(["confirm-time", "--folder", str(tmp_path)]) == 0
    assert "confirmed: it is" in capsys.readouterr().out
    guard.keep()
    assert not guard.jumped and guard.trusted
    assert main(["confirm-time", "--folder", str(tmp_path / "nothing")]) == 1
    assert "No such file" in capsys.readouterr().err
