"""Releases that an auditor learns again: a real provider learns five from growing evidence, and each is replayed.

All processes are real: provider, agents, the campaigns that they run, and the commands of operator and auditor. The
auditor's process cannot import the provider's package or its database. As a control, bundles are changed as a dishonest
provider could change them, signed with its real key and entered into the log where that helps it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evaluation.figures import Figures
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.release import Release, SealInputs
from pharoah_learning.sealing import seal
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.log.view import HEAD, Entry
from pharoah_protocol.vocabulary import Grade, Outcome, RowKind, Severity
from pharoah_serving.keys import open_keys
from tests.harness.site import Site, node_profiles, running_site

RELEASES, QUICK_RELEASES = 5, 2
FORGETS_AT = 3
"""Before this release an operator has one result forgotten."""
PLAN = """
name = "round {number}"
repeats = 1
limit_seconds = 60
[[workload]]
name = "gpt"
steps = 3
settings = {{ batch = 2 }}
vary = {{ attention = ["flash", "math"], length = [128, 1024] }}
[[workload]]
name = "mlp"
steps = 3
vary = {{ width = [{width}], optimizer = ["adamw/forloop", "sgd/foreach"] }}
"""
WIDTHS = (128, 128, 192, 128, 256)
"""The perceptrons of each round are so wide: some evidence repeats what was measured before, some is new."""
AUDITOR = """
import sys
foreign = ("pharoah_provider", "duckdb", "torch")
class Refused:  # None in sys.modules would do the same, but scipy looks there for torch
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in foreign:
            raise ModuleNotFoundError(f"{name} is not the auditor's")
sys.meta_path.insert(0, Refused)
from pharoah_auditor.cli import main
code = main(sys.argv[1:])
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in foreign)
sys.exit(f"the auditor has loaded {loaded}" if loaded else code)
"""

Bundle = dict[str, Any]


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Releases that are the same when they are learned again, and changed bundles that are found."""
    rng = random.Random(arguments.seed)
    releases = QUICK_RELEASES if arguments.quick else RELEASES
    identical, rows, tampered = 0, [], dict[str, list[bool]]()
    profiles = node_profiles()
    with tempfile.TemporaryDirectory() as folder, running_site(Path(folder), profiles) as site:
        key = open_keys(site.folder / "keys").signing_key
        for number in range(1, releases + 1):
            file = _next_release(site, number, rng)
            bundle = json.loads(file.read_text())
            code, said = _replay(site, file)
            identical += code == 0
            rows.append(
                [
                    str(number),
                    str(len(bundle["trials"])),
                    str(len(bundle["release"]["rows"])),
                    str(len(bundle["forgotten"])),
                    "identical" if code == 0 else said,
                ]
            )
            for name, tamper in TAMPERS.items():
                changed = file.with_name(f"{name}.json")
                changed.write_text(json.dumps(tamper(bundle, key, rng)))
                tampered.setdefault(name, []).append(_replay(site, changed)[0] == 1)
    figures.add("replay_identical_releases", identical, f"{releases} of {releases}", identical == releases)
    found, tried = sum(map(sum, tampered.values())), sum(map(len, tampered.values()))
    missed = ", ".join(name for name, results in tampered.items() if not all(results))
    figures.add(
        "replay_tampered_found", found, f"{tried} of {tried}", found == tried, missed and f"not found: {missed}"
    )
    figures.table(
        "Releases of a real provider, learned again by the auditor in a process without the provider's packages.",
        ["release", "trials", "rows", "forgotten results", "learned again"],
        rows,
    )


def _next_release(site: Site, number: int, rng: random.Random) -> Path:
    """Run one more campaign, learn, and write the audit bundle of the new epoch."""
    plan = site.folder / f"round-{number}.toml"
    plan.write_text(PLAN.format(number=number, width=WIDTHS[number - 1]))
    _done(site, "campaign", "run", str(plan), "--seed", str(rng.randrange(1 << 16)))
    if number == FORGETS_AT:
        _done(site, "forget", "cell", rng.choice(site.listing("cells"))["id"])
    said = _done(site, "learn")
    epoch = said.rpartition("sealed as epoch ")[2].split()[0]
    bundle = site.folder / f"epoch-{epoch}.json"
    _done(site, "audit-bundle", epoch, "--out", str(bundle))
    return bundle


def _done(site: Site, *command: str) -> str:
    """What a command of the operator printed. Raises RuntimeError when it fails."""
    process = site.operator(*command)
    said, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"pharoah-provider {' '.join(command)} ended with {process.returncode}: {said}")
    return said or ""


def _replay(site: Site, bundle: Path) -> tuple[int, str]:
    """The exit code of the auditor's command, and what it says does not hold. Raises RuntimeError when it breaks."""
    command = ["replay", str(bundle), "--provider-key", str(site.folder / "provider.pub")]
    done = subprocess.run([sys.executable, "-c", AUDITOR, *command], capture_output=True, text=True)
    if done.stderr:
        raise RuntimeError(f"pharoah-auditor {' '.join(command)}: {done.stderr}")
    return done.returncode, "; ".join(line[6:] for line in done.stdout.splitlines() if line.startswith("FAIL"))


def _other_outcome(bundle: Bundle, _: Ed25519PrivateKey, rng: random.Random) -> Bundle:
    """One trial that was learned from ended in another way."""
    used = usable_trials([Trial.from_dict(trial) for trial in bundle["trials"]], LeftOut())
    chosen = rng.choice(used).trial_id

    def changed(trial: Bundle) -> Bundle:
        outcome = Outcome.CRASH if trial["outcome"] == Outcome.OK else Outcome.OK
        return {**trial, "outcome": str(outcome)} if trial["trial_id"] == chosen else trial

    return {**bundle, "trials": [changed(trial) for trial in bundle["trials"]]}


def _without_trial(bundle: Bundle, _: Ed25519PrivateKey, rng: random.Random) -> Bundle:
    """One trial that was learned from is not there."""
    used = usable_trials([Trial.from_dict(trial) for trial in bundle["trials"]], LeftOut())
    chosen = rng.choice(used).trial_id
    return {**bundle, "trials": [trial for trial in bundle["trials"] if trial["trial_id"] != chosen]}


def _invented_row(bundle: Bundle, key: Ed25519PrivateKey, rng: random.Random) -> Bundle:
    """A row about a job that nobody has run, sealed and logged by the provider."""
    release = Release.from_dict(bundle["release"])
    row = rng.choice([row for row in release.rows if row.kind is RowKind.ARCHETYPE])
    invented = replace(row, tokens=(f"archetype={rng.randbytes(16).hex()}", *row.tokens[1:]), severity=Severity.WARN)
    return _sealed(bundle, key, replace(release, rows=(*release.rows, invented)))


def _stronger_row(bundle: Bundle, key: Ed25519PrivateKey, rng: random.Random) -> Bundle:
    """A row with another number of controls and another grade, sealed and logged by the provider."""
    release = Release.from_dict(bundle["release"])
    at = rng.randrange(len(release.rows))
    other = Grade.ASSOCIATION if release.rows[at].grade is Grade.MATCHED else Grade.MATCHED
    stronger = replace(release.rows[at], grade=other)
    return _sealed(bundle, key, replace(release, rows=(*release.rows[:at], stronger, *release.rows[at + 1 :])))


def _row_left_out(bundle: Bundle, key: Ed25519PrivateKey, rng: random.Random) -> Bundle:
    """A release without one row that follows from the trials, sealed and logged by the provider."""
    release = Release.from_dict(bundle["release"])
    at = rng.randrange(len(release.rows))
    return _sealed(bundle, key, replace(release, rows=(*release.rows[:at], *release.rows[at + 1 :])))


def _sealed(bundle: Bundle, key: Ed25519PrivateKey, release: Release) -> Bundle:
    """The bundle of another release, as its provider seals it with its own key and enters it into its log."""
    inputs = SealInputs(bundle["epoch"], release, SealInputs.groups_of(json.dumps(bundle["groups"])), bundle["began"])
    epoch = seal(inputs, bytes.fromhex(bundle["seed"]), key)
    before = Entry.from_body(HEAD, bundle["epoch"], bytes.fromhex(bundle["head"])).encode().hex()
    now = Entry.from_body(HEAD, bundle["epoch"], epoch.body).encode().hex()
    return {
        **bundle,
        "release": asdict(release),
        "head": epoch.body.hex(),
        "signature": epoch.signature.hex(),
        "log": [now if entry == before else entry for entry in bundle["log"]],
    }


TAMPERS: dict[str, Callable[[Bundle, Ed25519PrivateKey, random.Random], Bundle]] = {
    "other outcome": _other_outcome,
    "trial left out": _without_trial,
    "invented row": _invented_row,
    "stronger grade": _stronger_row,
    "row left out": _row_left_out,
}
