"""Everything of the product that writes a file, each as the code that its users start; and what it reads back of it.

A writer gets a folder. What a user names is `folder/NAME`; what the product names itself is in a folder of state that
is `folder` or below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah import _runtime_folder
from pharoah._errors import PharoahError
from pharoah._settings import Settings
from pharoah._sidecar_start import _folders_of_this_job
from pharoah._verdict import Verdict
from pharoah.cli.main import main as pharoah
from pharoah.comparison.history import History, Run
from pharoah.replay.step_file import StepReader
from pharoah.sidecar.evidence import Evidence, exchange_folder
from pharoah.sidecar.job_identity import JobIdentity
from pharoah.sidecar.log_client import LogClient
from pharoah.sidecar.node_verdicts import NodeVerdicts
from pharoah.sidecar.provider_audit import _answer_files
from pharoah.sidecar.table_cache import TableCache
from pharoah.sidecar.unreported_ends import UnreportedEnds
from pharoah.skeleton_picture import draw
from pharoah_archetypes import parse
from pharoah_auditor.cli import UsageError, _witness_key
from pharoah_auditor.witness import Witness
from pharoah_benchmarks.environments.answer import BuildError
from pharoah_benchmarks.environments.store import EnvironmentStore, Stamp
from pharoah_protocol.log.checkpoint import log_origin
from pharoah_protocol.log.view import HEAD, Entry
from pharoah_protocol.v1 import EndRunRequest
from pharoah_protocol.vocabulary import VerdictStatus
from pharoah_provider.agent.cli import main as agent
from pharoah_provider.agent.local_socket import load_key
from pharoah_provider.certificates import Authority
from pharoah_provider.cli import main as provider
from pharoah_provider.cli.table.export import write as write_table
from pharoah_provider.first_start import make_provider
from pharoah_provider.pictures._canvas import blank, save
from pharoah_serving.audit_log import AuditLog, AuditRecord, verify
from pharoah_serving.errors import ProviderError
from pharoah_serving.folder_lock import FolderLock
from pharoah_serving.keys import open_keys
from pharoah_serving.time_guard import CONFIRMATION_FILE, confirm
from pharoah_serving.tokens import new_token, read_tokens
from pharoah_system.files import write_atomically
from pharoah_system.held_folders import hold_folder
from pharoah_system.local_sockets import ServedSocket
from tests.harness.planted_folders import OLD_SCRATCH

KEY = Ed25519PrivateKey.generate()
ORIGIN = log_origin(KEY.public_key().public_bytes_raw())
RUN_ID = "ab" * 16
JOB = JobIdentity(b"j" * 16, 0, 2)
MACHINE = os.uname().nodename
TRAINING = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(2, 2)).sum().backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Writer:
    """One thing that the product writes."""

    name: str
    write: Callable[[Path], object]
    files: tuple[str, ...]
    """Names in the folder that somebody else can foresee: of files and of the folders above them."""
    reads: Callable[[Path], bool] | None = None
    """Whether the product uses what lies there; None for what it does not read again."""
    private: bool = True
    """Whether nobody else may read what is written."""
    leaves: bool = True
    """Whether something stays, and not a lock or a socket only."""
    slow: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that somebody else may plant, also what earlier releases and other programs append."""
        endings = tuple(f"{name}{ending}" for name in self.files for ending in OLD_SCRATCH)
        return (*self.files, *endings, *(f".{name}" for name in self.files if "/" not in name))


def _settings(folder: Path) -> Settings:
    """The settings of a tenant whose folder of state this is."""
    return Settings(state_folder=str(folder), provider_key_file=str(_public_key()), keep_runs=5)


def _public_key() -> Path:
    path = Path(_OWN.name, "provider.pub")
    if not path.exists():
        write_atomically(path, KEY.public_key().public_bytes_raw().hex())
    return path


_OWN = tempfile.TemporaryDirectory(prefix="pharoah-writers-")
"""A folder of this process alone, for what a writer reads."""


def _quietly(main: Callable[[list[str]], int], *arguments: str | Path) -> None:
    """Run a command. Raises OSError when it says that it could not write."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        code = main([str(one) for one in arguments])
    if code and "--superbench" not in arguments:
        raise OSError(said.getvalue())


def _by_scratch_name(path: Path) -> None:
    scratch = path.with_name(f"{path.name}.partial")
    with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(b"content")
    scratch.replace(path)


def _in_any_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "run.json").write_bytes(b"content")


def _step(path: Path) -> None:
    """A real step of a real model. Raises OSError where it is not saved."""
    import torch

    from pharoah.replay.step_saver import StepSaver

    saver = StepSaver(path, 0)
    with saver:
        torch.ones(4, 4).mm(torch.ones(4, 4))
    saver.finish()


def _saved_step() -> Path:
    path = Path(_OWN.name, "step")
    if not path.exists():
        _step(path)
    return path


def _script() -> Path:
    path = Path(_OWN.name, "train.py")
    write_atomically(path, TRAINING)
    return path


def _record(folder: Path) -> None:
    _quietly(pharoah, "record", "--out", folder / "out", "--", sys.executable, _script())


def _past_runs() -> list[str]:
    """A file of past runs and its column map, as options of `backfill`."""
    from tests.provider_service.test_backfill import MANY_MAP, many_runs

    columns = Path(_OWN.name, "map.toml")
    write_atomically(columns, MANY_MAP)
    return [str(many_runs(Path(_OWN.name))), "--map", str(columns)]


def _token(folder: Path) -> None:
    tokens = Path(_OWN.name, f"tokens-{time.monotonic_ns()}")
    new_token(tokens, "tenant", "acme", folder / "out")


def _listed(folder: Path) -> None:
    new_token(folder / "out", "tenant", "acme", Path(_OWN.name, f"token-{time.monotonic_ns()}"))


def _history(folder: Path) -> bool:
    return bool(History(_settings(folder)).runs())


def _kept_log(folder: Path) -> None:
    client = LogClient(KEY.public_key(), [], exchange_folder(_settings(folder)))
    client._memory = client._memory.read([Entry.from_body(HEAD, 1, b"head").encode()])
    client._keep()


def _knows_log(folder: Path) -> bool:
    return LogClient(KEY.public_key(), [], exchange_folder(_settings(folder))).size > 0


def _ends(folder: Path) -> None:
    asyncio.run(UnreportedEnds(_settings(folder)).keep(EndRunRequest(run_id=bytes.fromhex(RUN_ID))))


def _has_ends(folder: Path) -> bool:
    return bool(asyncio.run(UnreportedEnds(_settings(folder)).all()))


def _nodes(folder: Path) -> tuple[NodeVerdicts, Path]:
    settings = _settings(folder)
    shared = exchange_folder(settings)
    assert shared is not None
    verdicts = NodeVerdicts(JOB, settings, lambda: Verdict(VerdictStatus.COMPATIBLE), lambda _: None)
    return verdicts, shared / "nodes" / JOB.job_id.hex()


def _node_verdict(folder: Path) -> None:
    verdicts, place = _nodes(folder)
    verdicts._write(place, Verdict(VerdictStatus.COMPATIBLE))


def _reads_nodes(folder: Path) -> bool:
    verdicts, place = _nodes(folder)
    return verdicts._read(place) and any(seen is not None for _, seen in verdicts._seen.values())


class _Provider:
    key = KEY.public_key()
    channel = None


def _table(folder: Path) -> None:
    cache = TableCache.__new__(TableCache)
    cache._folder = (exchange_folder(_settings(folder)) or folder) / ORIGIN
    path = cache._path(7, b"class", "")
    cache._keep(7, path, b"rows", path)


def _sidecar_folder(folder: Path) -> None:
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(folder)
    try:
        shutil.rmtree(_runtime_folder.private_folder())
        for place in _folders_of_this_job():
            with contextlib.suppress(OSError), _runtime_folder.lock(place, 0.5):
                break
        _runtime_folder.remove_folder(place / "sidecar.sock")
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before


def _held(folder: Path) -> None:
    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    try:
        with hold_folder("pharoah-cells-") as held:
            write_atomically(held.path / "file", b"content")
    finally:
        tempfile.tempdir = before


def _socket(folder: Path) -> None:
    ServedSocket(folder / "p.sock").close()


def _audit(folder: Path) -> None:
    log = AuditLog(folder)
    log.record(time.time(), AuditRecord(method="Join"))
    log.close()


def _audit_read(folder: Path) -> bool:
    log = AuditLog(folder)
    log.close()
    return any(verify(path) for path in folder.glob("audit-*.jsonl"))


def _new_provider(folder: Path) -> None:
    make_provider(str(folder / "keys"), folder / "p.duckdb")


def _own_provider(folder: Path) -> bool:
    with FolderLock(folder / "keys", "provider"):
        return bool(open_keys(folder / "keys").public)


def _database(folder: Path) -> bool:
    from pharoah_provider.storage.duckdb import DuckStorage

    DuckStorage(folder / "p.duckdb").close()
    return True


def _confirmation(folder: Path) -> None:
    with FolderLock(folder, "provider"):
        confirm(folder, time.time())


def _witness(folder: Path) -> None:
    with FolderLock(folder, "witness"):
        key = _witness_key(folder, init=True)
        Witness("w", key, [], folder / "seen.json")._remember("log", {"size": 1, "root": "00"})


def _witness_read(folder: Path) -> bool:
    with FolderLock(folder, "witness"):
        return bool(_witness_key(folder, init=False))


def _environment(folder: Path) -> None:
    """What a build leaves, without the packages."""
    store = EnvironmentStore(folder)
    home = store._ready_folder() / ("ab" * 10)
    store.prune(1e9)
    home.mkdir(mode=0o700)
    stamp = Stamp(environment="x==1", python="3.11.7", packages={})
    write_atomically(home / "pharoah-environment.json", _as_text(stamp))


def _as_text(stamp: Stamp) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(asdict(stamp))


def _issued(folder: Path) -> None:
    Authority(folder, "pharoah.local").issue("tenant/acme")


def _authority(folder: Path) -> bool:
    return Authority(folder, "pharoah.local").deny("tenant/acme") > 0


def _steps_of(folder: Path) -> bool:
    return bool(StepReader(folder / "out").step.events)


_JOB = _folders_of_this_job()[0].name
_EXCHANGE = ("exchange", f"exchange/{ORIGIN}")
_AUDIT = f"audit-{datetime.now(UTC):%Y-%m-%d}.jsonl"
OUTPUTS = (
    Writer("run --step-file", lambda f: _step(f / "out"), ("out",), _steps_of),
    Writer("replay --out", lambda f: _quietly(pharoah, "replay", _saved_step(), "--seconds", "0", "--out", f / "out"),
           ("out",), private=False),
    Writer("record --out", _record, ("out",), private=False, slow=True),
    Writer("PHAROAH_VERDICT_FILE", lambda f: Verdict(VerdictStatus.COMPATIBLE).write(str(f / "out")), ("out",),
           private=False),
    Writer("explain --draw", lambda f: draw(f / "out.svg", parse("fwd: emb gemm nll"), "job"), ("out.svg",),
           private=False),
    Writer("draw --out", lambda f: save(blank(1, 1), f / "out.png"), ("out.png",), private=False),
    Writer("table export", lambda f: write_table(f / "out", b"rows"), ("out",), private=False),
    Writer("backfill --out", lambda f: _quietly(provider, "backfill", *_past_runs(), "--out", f / "out"), ("out",),
           private=False, slow=True),
    Writer("agent benchmark --superbench", lambda f: _quietly(
        agent, "benchmark", "launch", "--superbench", f / "out", "--node", "n1", "--profile", '{"threads": 1}'),
           ("out",), private=False, slow=True),
    Writer("token --out", _token, ("out",)),
    Writer("list of tokens", _listed, ("out",), lambda f: bool(read_tokens(f / "out"))),
)  # fmt: skip
"""Files that a person names."""
STATE = (
    Writer("records of runs", lambda f: History(_settings(f)).write(Run(RUN_ID)),
           ("runs", f"runs/{MACHINE}", f"runs/{MACHINE}/{RUN_ID}.json"), _history),
    Writer("kept answers", lambda f: Evidence(_settings(f)).answer(RUN_ID, {"a": 1}),
           (*_EXCHANGE, f"exchange/{ORIGIN}/answers", f"exchange/{ORIGIN}/answers/{RUN_ID}.json"),
           lambda f: bool(_answer_files(_settings(f)))),
    Writer("evidence of misbehaviour", lambda f: Evidence(_settings(f)).misbehaviour({"kind": "two logs"}),
           (*_EXCHANGE, f"exchange/{ORIGIN}/misbehaviours")),
    Writer("memory of the log", _kept_log,
           (*_EXCHANGE, f"exchange/{ORIGIN}/{ORIGIN}.json", f"exchange/{ORIGIN}/{ORIGIN}.lock"), _knows_log),
    Writer("ends that wait", _ends,
           (*_EXCHANGE, f"exchange/{ORIGIN}/ends", f"exchange/{ORIGIN}/ends/{RUN_ID}.end"), _has_ends),
    Writer("verdicts of nodes", _node_verdict,
           (*_EXCHANGE, f"exchange/{ORIGIN}/nodes", f"exchange/{ORIGIN}/nodes/{JOB.job_id.hex()}",
            f"exchange/{ORIGIN}/nodes/{JOB.job_id.hex()}/0.json"), _reads_nodes),
    Writer("tables", _table, (*_EXCHANGE, f"exchange/{ORIGIN}/{ORIGIN}",
                              f"exchange/{ORIGIN}/{ORIGIN}/7-{b'class'.hex()}.rows")),
    Writer("runtime folder", _sidecar_folder, (_JOB, f"{_JOB}/lock"), leaves=False),
    Writer("folders of cells", _held, ("pharoah-cells-x", "new-pharoah-cells-x"), leaves=False),
    Writer("lock of a socket", _socket, ("p.sock", "p.sock.new", "p.sock.lock"), leaves=False),
    Writer("ticket key", lambda f: load_key(f / "ticket.key"), ("ticket.key",),
           lambda f: (f / "ticket.key").exists() and bool(load_key(f / "ticket.key"))),
    Writer("provider init", _new_provider, ("keys", "keys/signing.key", "keys/high-water.json", "p.duckdb"),
           _own_provider),
    Writer("database", _database, ("p.duckdb", "p.duckdb.wal"), _database, private=False),
    Writer("audit log", _audit, (_AUDIT,), _audit_read),
    Writer("confirmed time", _confirmation, (CONFIRMATION_FILE,)),
    Writer("witness", _witness, ("witness.key", "seen.json"), _witness_read),
    Writer("certificates", _issued, ("ca.key", "ca.pem", "issued.jsonl", "tenant-acme.key", "denied"), _authority,
           private=False),
    Writer("environments", _environment, ("ab" * 10, "ab" * 10 + ".lock"),
           lambda f: bool(EnvironmentStore(f).list_finished())),
)  # fmt: skip
"""Files of folders that the product chooses or that are for it alone."""
CONTROLS = (
    Writer("as most programs write", lambda f: (f / "out").write_bytes(b"content"), ("out",), private=False),
    Writer("a scratch name that can be foreseen", lambda f: _by_scratch_name(f / "out"), ("out",), private=False),
    Writer(
        "a folder of state that is made unless it is there",
        lambda f: _in_any_folder(f / "runs"),
        ("runs",),
        private=False,
    ),
)
"""Not of the product: they show that a case would be noticed."""
REFUSALS = (OSError, ProviderError, PharoahError, BuildError, UsageError, ValueError)
"""What a writer raises where it does not write; anything else is a fault."""


def writers(quick: bool) -> Sequence[Writer]:
    """All of them; the slow ones not in the short form."""
    return [one for one in (*OUTPUTS, *STATE) if not (quick and one.slow)]
