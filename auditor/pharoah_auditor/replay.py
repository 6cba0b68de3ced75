"""Replay of an epoch: seal and learn it again from the audit bundle of the provider, and compare.

A replay shows what proofs cannot: rows that were left out, invented, or made to identify a tenant's job. The provider
alone reports trials: to invent a row it must invent trials as well, and keep them consistent in every later bundle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.monitoring_plans import MIN_ARCHETYPES
from pharoah_learning.portable_table import Imported, import_rows, read_table
from pharoah_learning.release import (
    FIRST_WITH_NODE_ROWS,
    FIRST_WITH_SUB_ARCHETYPES,
    ClassKey,
    LearnedRow,
    Release,
    SealInputs,
)
from pharoah_learning.sealing import seal
from pharoah_protocol.log.checkpoint import Note, log_verifier
from pharoah_protocol.log.forgotten import ForgetChange, ForgottenEvidence, entry_of, list_logged_changes
from pharoah_protocol.log.merkle import Frontier
from pharoah_protocol.log.view import HEAD, Entry, LogError, View
from pharoah_protocol.monitoring_plan import PLAIN
from pharoah_protocol.tables.epoch_head import is_signed
from pharoah_protocol.vocabulary import RowKind, Scope, Severity
from pharoah_system.bounded_reading import JsonLimits, UnreadableInput, parse_json, read_json_file, read_text
from pharoah_system.text import sanitize_text

FORMAT = 6
"""Version of the bundles that are read here; `pharoah-provider audit-bundle` writes it."""
BUNDLE_LIMITS = JsonLimits(max_bytes=512 << 20, growth=8)
"""A bundle holds all that a release was learned from: half a million trials, at about 1 KB each."""
NAME_CHARACTERS = 64
"""Characters that are read of the name of another provider; importing accepts no longer one."""


class AuditBundleError(ValueError):
    """A file that is not an audit bundle, or not a checkpoint; the message says why."""


@dataclass(frozen=True)
class AuditFinding:
    """One result of a replay."""

    holds: bool | None
    """None when there was nothing to check it against."""
    what: str


@dataclass(frozen=True)
class _Bundle:
    """The content of an audit bundle (`pharoah_provider.audit_bundle` writes it)."""

    inputs: SealInputs
    seed: bytes
    head: bytes
    signature: bytes
    trials: list[Trial]
    learned_at: float
    """Unix seconds: when the release was learned, as the provider says."""
    forgotten: list[ForgetChange]
    """All changes of forgotten evidence that were logged before the head."""
    imported: list[Imported]
    """Tables of other providers that were used; reading them checks their signatures."""
    log: list[bytes]


def replay(file: Path, public: bytes, seen: Path | None = None) -> list[AuditFinding]:
    """Everything that an audit bundle shows about the provider with this key.

    `seen` is a checkpoint that a tenant or a witness has seen, or a tenant's kept answer. Raises AuditBundleError.
    """
    bundle = _read(file)
    if not is_signed(bundle.head, bundle.signature, Ed25519PublicKey.from_public_bytes(public)):
        return [AuditFinding(False, "the head is not signed by this key; nothing else was checked")]
    return [
        AuditFinding(True, "the head is signed by this key"),
        _seal_again(bundle),
        _log(bundle),
        _as_seen(bundle.log, public, seen),
        *_check_forgotten(bundle),
        *_learn_again(bundle),
    ]


def _read(file: Path) -> _Bundle:
    try:
        data = read_json_file(file, BUNDLE_LIMITS)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, expected {FORMAT}")
        groups = tuple(ClassKey(scope=Scope(scope), group_id=str(group)) for scope, group in data["groups"])
        head, signature, seed = (bytes.fromhex(data[name]) for name in ("head", "signature", "seed"))
        return _Bundle(
            inputs=SealInputs(int(data["epoch"]), Release.from_dict(data["release"]), groups, int(data["began"])),
            seed=seed,
            head=head,
            signature=signature,
            trials=[Trial.from_dict(row) for row in data["trials"]],
            learned_at=float(data["learned_at"]),
            forgotten=[ForgetChange.from_dict(change) for change in data["forgotten"]],
            imported=[_import(one) for one in data["imported"]],
            log=[bytes.fromhex(entry) for entry in data["log"]],
        )
    except UnreadableInput as error:
        raise AuditBundleError(f"{file}: not an audit bundle: {error.problem}") from None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise AuditBundleError(f"{file}: not an audit bundle of a known format ({error})") from None


def _import(data: dict[str, Any]) -> Imported:
    """A table of another provider. Its name goes into a line of the output, where control codes could erase others."""
    name = sanitize_text(str(data["provider"]), NAME_CHARACTERS)
    return Imported(name, read_table(data["content"], bytes.fromhex(data["key"])))


def _seal_again(bundle: _Bundle) -> AuditFinding:
    try:
        again = seal(bundle.inputs, bundle.seed, Ed25519PrivateKey.generate())
    except ValueError as error:
        return AuditFinding(False, f"the epoch cannot be sealed again: {error}")
    rows, same = sum(len(one.rows) for one in again.classes.values()), again.body == bundle.head
    verb = "seal" if same else "do NOT seal"
    return AuditFinding(same, f"{rows} rows in {len(again.classes)} tables {verb} to the roots and keys of the head")


def _log(bundle: _Bundle) -> AuditFinding:
    try:
        View().read(bundle.log)
    except LogError as error:
        return AuditFinding(False, f"the log has an entry that an honest log never has: {error}")
    found = Entry.from_body(HEAD, bundle.inputs.epoch, bundle.head).encode() in bundle.log
    return AuditFinding(found, f"the head is {'' if found else 'NOT '}in the log of {len(bundle.log)} entries")


def _check_forgotten(bundle: _Bundle) -> Iterator[AuditFinding]:
    """What an operator has had forgotten is in the log, change by change, and no trial of it was learned from.

    The changes must be all that were logged before the head: a provider could leave out those that it did not follow.
    That a change came after the release was learned is the provider's word. It is refuted by a trial that ran later.
    """
    logged = list_logged_changes(bundle.log, Entry.from_body(HEAD, bundle.inputs.epoch, bundle.head))
    changes, learned_at = bundle.forgotten, bundle.learned_at
    if not changes and not logged:
        return
    same = [entry_of(changes[: at + 1]).encode() for at in range(len(changes))] == logged
    text = f"{len(changes)} changes of forgotten evidence are {'' if same else 'NOT '}the {len(logged)} of the log"
    yield AuditFinding(same, text)
    if not same:
        return
    before = ForgottenEvidence.after(change for change in changes if change.at <= learned_at)
    used = sum(_holds(before, trial) for trial in bundle.trials)
    yield AuditFinding(not used, f"{used} trials were learned from although they are forgotten")
    late = sum(not trial.ran_at <= learned_at for trial in bundle.trials)
    yield AuditFinding(not late, f"{late} trials ran after the time at which the release is said to be learned")
    if later := sum(not change.at <= learned_at for change in changes):
        everything = ForgottenEvidence.after(changes)
        forgotten = sum(_holds(everything, trial) and not _holds(before, trial) for trial in bundle.trials)
        text = f"{later} changes are dated later than the release, by the provider alone"
        yield AuditFinding(None, f"{text}; {forgotten} of its trials are forgotten by them")


def _holds(evidence: ForgottenEvidence, trial: Trial) -> bool:
    return evidence.holds(trial.node, trial.ran_at, trial.trial_id)


def _as_seen(log: list[bytes], public: bytes, seen: Path | None) -> AuditFinding:
    """Whether others were shown this log: a provider could put a log into the bundle that nobody else has seen."""
    if seen is None:
        return AuditFinding(None, "it was not checked whether others were shown this log (--seen FILE)")
    try:
        text = read_text(seen)
        note = Note.decode((parse_json(text, seen)["checkpoint"] if text.startswith("{") else text).encode())
        note.verify(log_verifier(public))
        root = Frontier().add(*log[: note.checkpoint.size]).root
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AuditBundleError(f"{seen}: not a checkpoint of this provider ({error})") from None
    size = note.checkpoint.size
    same = size <= len(log) and root == note.checkpoint.root
    return AuditFinding(same, f"the log is {'' if same else 'NOT '}the one of the checkpoint of {size} entries")


def _learn_again(bundle: _Bundle) -> Iterator[AuditFinding]:
    """Rows without a trial behind them, for example guesses about what tenants run; and rows that were left out."""
    from pharoah_learning.context_evidence import in_contexts  # here: a bundle that cannot be read needs no scipy
    from pharoah_learning.table import learn_table

    release, groups, trials = bundle.inputs.release, bundle.inputs.groups, bundle.trials
    left_out = LeftOut()
    table = learn_table(trials, left_out, release.returned, release.fleet)
    has_sub_archetypes = release.format >= FIRST_WITH_SUB_ARCHETYPES
    own = [
        *table.rows,
        *(table.nodes if release.format >= FIRST_WITH_NODE_ROWS else ()),
        *(table.expanded if has_sub_archetypes else ()),
        *table.bands,
    ]
    imported = import_rows(own, bundle.imported)
    expected = Counter(_content(row) for row in [*own, *imported])
    sealed = Counter(_content(row) for row in release.rows if row.kind != RowKind.PSEUDONYM)
    invented, missing = (sealed - expected).total(), (expected - sealed).total()
    yield AuditFinding(not invented, f"{invented} of {sealed.total()} rows do not follow from the {len(trials)} trials")
    yield AuditFinding(not missing, f"{missing} rows that follow from the trials were left out")
    if has_sub_archetypes:
        same = table.versions == (release.sub_archetypes, release.version_changes)
        text = f"{len(release.sub_archetypes)} sub-archetypes and {len(release.version_changes)} steps of versions"
        yield AuditFinding(same, f"{text} {'follow' if same else 'do NOT follow'} from the trials")
    same = (release.context_rule, release.contexts) == (table.learned_contexts.rule, table.contexts)
    verb = "follow" if same else "do NOT follow"
    yield AuditFinding(same, f"the rule of contexts and {len(release.contexts)} contexts {verb} from the trials")
    other = (Counter(table.suspects) - Counter(release.suspects)) + (
        Counter(release.suspects) - Counter(table.suspects)
    )
    yield AuditFinding(not other, f"{other.total()} suspects are not those that follow from the trials")
    if unused := left_out.counts.total():
        yield AuditFinding(None, f"{unused} trials and rows were left out by the rules that learning follows")
    if bundle.imported:
        names = ", ".join(sorted({one.provider for one in bundle.imported}))
        yield AuditFinding(None, f"{len(imported)} rows are the word of other providers ({names}), signed by them")
    yield from _pseudonym_rows(release)
    without_trial = len(set(groups) - _machines(in_contexts(trials, release.context_rule)))
    yield AuditFinding(
        None if without_trial else True, f"{without_trial} of {len(groups)} tables are about machines without a trial"
    )
    rare = _rare_plans(release)
    yield AuditFinding(not rare, f"{rare} monitoring plans are shared by fewer than {MIN_ARCHETYPES} archetypes")


def _pseudonym_rows(release: Release) -> Iterator[AuditFinding]:
    """Rows about pseudonyms follow from outcomes that tenants share, and a bundle does not hold those. So they may
    warn, but never block."""
    rows = [row for row in release.rows if row.kind == RowKind.PSEUDONYM]
    if rows:
        blocking = sum(row.severity == Severity.BLOCK for row in rows)
        text = f"{len(rows)} rows are about pseudonyms; the outcomes behind them are not in the bundle"
        yield AuditFinding(False if blocking else None, f"{text}; {blocking} of them block" if blocking else text)


def _machines(trials: list[Trial]) -> set[ClassKey]:
    contexts = {ClassKey(scope=Scope.SERVER, group_id=trial.context_id) for trial in trials}
    return contexts | {ClassKey(scope=Scope.DEVICE, group_id=trial.device_id) for trial in trials}


def _rare_plans(release: Release) -> int:
    """Number of plans that identify their archetype: the provider would recognise it by the reports of its runs."""
    sharing: dict[str, set[str]] = defaultdict(set)
    for row in release.rows:
        archetype = next((token for token in row.tokens if token.startswith("archetype=")), "")
        if row.plan and row.plan != PLAIN.pack().hex() and archetype:
            sharing[row.plan].add(archetype)
    return sum(len(archetypes) < MIN_ARCHETYPES for archetypes in sharing.values())


def _content(row: LearnedRow) -> tuple[Any, ...]:
    """Everything that a row states; its title is for people only."""
    return (
        row.id,
        row.severity,
        row.outcome,
        row.failures,
        row.runs,
        row.base_failures,
        row.base_runs,
        row.remedy,
        row.plan,
        row.provenance,
        row.grade,
        row.evidence,
    )
