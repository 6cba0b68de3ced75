"""Every reader of files and messages that others have written, with a good input and the way the product calls it.

Each entry imports what it needs only when it is asked for. `tests.harness.reading_child` reads files in a process of
its own; the test of hostile files and two parts of `evaluation hardening` start it.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from dataclasses import asdict, fields
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

KEY = bytes(range(32))
KINETO = json.dumps([{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "tid": 1}] * 3)
_ARGUMENTS: dict[str, list[str]] = {
    f"{side}{what}": [] for side in ("input", "output") for what in ("s", "_shapes", "_types")
}
EXECUTION = json.dumps({"schema": "1.0", "nodes": [{"id": 2, "name": "aten::mm", "parent": 1, **_ARGUMENTS}]})
CHAKRA = b"\x02\x0a\x00" + (lambda node: bytes([len(node)]) + node)(b"\x08\x01\x12\x08aten::mm\x18\x04")
"""A message about the file, and one node: id 1, its name, and the type of a computation."""
MAP = """
model = "net"
error = "error"
[end_state]
column = "good"
values = { yes = "ok", no = "failed" }
[context]
driver = { column = "driver", pattern = '^([0-9]+)' }
"""
TABLE = "net,good,driver,error\nresnet50,yes,535.129,\nours,no,550.1,KeyError: 'x'\n"
SACCT = "JobID|JobName|State|NodeList|ExitCode|Start\n1|train|COMPLETED|n[1-3]|0:0|2024-01-01T00:00:00\n"
RULES = (
    "superbench:\n  rules:\n    slow: {function: value, criteria: 'lambda x: x', categories: A, metrics: ['a:.*']}\n"
)
CAMPAIGN = 'name = "c"\nrepeats = 2\n[[workload]]\nname = "mlp"\nsteps = 2\n'
XID = '[[xid]]\ncode = 11\nmeaning = "m"\n'


class RefusedMessage(Exception):
    """A message that its reader refuses with an error that its callers handle."""


class Reader(NamedTuple):
    """A reader as the product calls it."""

    file: str
    """What its file is called."""
    good: Callable[[Path], Any]
    """Writes a good file."""
    read: Callable[[Path], Any]
    is_refused: bool = False
    """Whether the good file is refused for what it says, once it is read."""
    is_message: bool = False
    """Whether it comes in a message, so that there is no file with a kind."""


def _text(content: str | bytes) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(content.encode() if isinstance(content, str) else content)


def _message(good: str | bytes, read: Callable[[bytes], Any]) -> Reader:
    """A message comes in a buffer of a bounded size; here a file holds it. Who calls such a reader handles ValueError,
    TypeError and KeyError, as its docstring says; gRPC gives texts that are UTF-8."""

    def first(path: Path) -> Any:
        with path.open("rb") as stream:
            content = stream.read(4 << 20)
        try:
            return read(content)
        except RecursionError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise RefusedMessage(str(error)) from None

    return Reader("message", _text(good), first, is_message=True)


def saved_step(path: Path) -> None:
    """A step of a small model."""
    import torch

    from pharoah.replay.step_saver import StepSaver

    model = torch.nn.Linear(4, 4)
    saver = StepSaver(path, 0)
    with saver:
        model(torch.ones(2, 4)).sum().backward()
    saver.finish()


def _step() -> Reader:
    import torch

    from pharoah.cli.replay import _set_variables
    from pharoah.replay.repeat import repeat
    from pharoah.replay.step_file import StepReader

    torch.ones(1).add(1)

    def read(path: Path) -> Any:
        before = dict(os.environ)
        try:
            reader = StepReader(path)
            _set_variables(reader.step.node_class)
            if reader.step.node_class.variables:
                os.environ.update(reader.step.node_class.variables)  # as in a process without torch
            return repeat(reader, "n2", 0.0)
        finally:
            if added := os.environ.keys() - before.keys():
                from pharoah.replay.step_file import CPU_VARIABLES, GPU_VARIABLES

                foreign = added - {*CPU_VARIABLES, *GPU_VARIABLES}
                for name in added:
                    del os.environ[name]
                assert not foreign, f"a file has set {foreign}"

    return Reader("step", saved_step, read)


def _replay_result() -> Reader:
    from pharoah.replay.results import NodeResult, RepeatOutcome, read_results, write_results

    result = NodeResult("id", "n1", [RepeatOutcome(["a"], 3)])
    return Reader("result", lambda path: write_results(path, [result]), lambda path: read_results(path, "id"))


def _record() -> Reader:
    from pharoah.comparison.record import Record, parse_record

    return Reader("record.json", _text(Record({"software": {"torch": "2"}}).to_json()), parse_record)


def _evidence() -> Reader:
    from pharoah_protocol.tables.misbehaviour import prove
    from pharoah_system.bounded_reading import read_json_file

    return Reader("evidence.json", _text('{"kind": "two heads"}'), lambda path: prove(read_json_file(path), KEY), True)


def _bundle() -> Reader:
    from pharoah_auditor.replay import replay
    from tests.auditor.test_auditor import PUBLIC, ROWS, audit_bundle

    def good(path: Path) -> None:
        audit_bundle(path.parent, tuple(ROWS)).rename(path)

    return Reader("bundle.json", good, lambda path: replay(path, PUBLIC))


def _portable_table() -> Reader:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pharoah_learning.portable_table import PortableTable, read_table, write_table
    from pharoah_system.bounded_reading import read_text

    key = Ed25519PrivateKey.from_private_bytes(KEY)
    public = key.public_key().public_bytes_raw()
    good = write_table(PortableTable(1, 1.0, {}, ()), key)
    return Reader("table.json", _text(good), lambda path: read_table(read_text(path), public))


def _campaign() -> Reader:
    from pharoah_benchmarks.campaign.plan import parse_plan
    from pharoah_system.bounded_reading import read_text

    return Reader("campaign.toml", _text(CAMPAIGN), lambda path: parse_plan(read_text(path)))


def _profile() -> Reader:
    from pharoah_provider.agent.cli import _profile as read

    return Reader("profile.json", _text('{"threads": 1}'), lambda path: read(str(path)))


def _profile_of_a_call() -> Reader:
    from pharoah_provider.services.readers.files import read_profile

    return _message('{"threads": 1}', read_profile)


def _workload() -> Reader:
    from pharoah_benchmarks.workload_files import _workload as read

    def good(path: Path) -> None:
        (path.parent / "w.py").touch()
        path.write_text('help = "h"\nscript = "w.py"\n[settings]\nbatch = 2\n')

    return Reader("w.toml", good, read)


def _environment() -> Reader:
    from pharoah_benchmarks.environments.files import environment_file

    return Reader("e.toml", _text('packages = ["numpy==1.26.4"]\n'), environment_file)


def _column_map() -> Reader:
    from pharoah_provider.backfill import SOURCES, columns_of, read_map_file

    def read(path: Path) -> Any:
        table = path.parent / "runs.csv"
        table.write_text(TABLE + f"ours,no,{'a' * 60}!,\n")
        return columns_of(table, SOURCES["csv"], read_map_file(path))

    return Reader("map.toml", _text(MAP), read)


def _past_runs(kind: str, file: str, good: Callable[[Path], Any]) -> Callable[[], Reader]:
    def make() -> Reader:
        from pharoah_provider.backfill import SOURCES, columns_of, read_map

        source = SOURCES[kind]
        columns = read_map(source.map or MAP, "map")
        return Reader(file, good, lambda path: columns_of(path, source, columns))

    return make


def _parquet(path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv, parquet

    parquet.write_table(csv.read_csv(pa.py_buffer(TABLE.encode())), path)


def _superbench(kind: str, file: str, good: str) -> Callable[[], Reader]:
    def make() -> Reader:
        from pharoah_provider import superbench

        return Reader(file, _text(good), vars(superbench)[f"read_{kind}"])

    return make


def _trace(file: str, good: bytes) -> Callable[[], Reader]:
    def make() -> Reader:
        from pharoah_provider.traces import read_traces

        return Reader(file, _text(good), lambda path: list(read_traces(path)))

    return make


def _tar() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.json")
        member.size = len(KINETO)
        archive.addfile(member, io.BytesIO(KINETO.encode()))
    return packed.getvalue()


def _xids() -> Reader:
    from pharoah_provider.agent.xid_catalogue import xid_catalogue

    return Reader("xid.toml", _text(XID), xid_catalogue().overridden)


def _local_message() -> Reader:
    import pharoah_protocol.agent_messages  # noqa: F401 - it enters its messages
    from pharoah_protocol.local_messages import MESSAGES, decode

    verb = next(name for name, kind in sorted(MESSAGES.items()) if not fields(kind))  # type: ignore[arg-type]
    return _message(json.dumps({"verb": verb}), decode)


def _ticket() -> Reader:
    from pharoah_protocol.node_ticket import Ticket

    return _message(json.dumps(asdict(Ticket("n", "b", "0", 1.0))), Ticket.read)


def _hazard_model() -> Reader:
    from pharoah_protocol.hazard_model import PublishedHazardModel
    from tests.harness.hazard_models import MODEL

    return _message(MODEL.encode(), PublishedHazardModel.decode)


def _fingerprint() -> Reader:
    from pharoah_archetypes import Fingerprint

    good = Fingerprint("0" * 32, "0" * 32, "fwd: a", {}, {"parameters": 1, "activations": 1}, {"torch": "2"})
    return _message(good.to_json(), Fingerprint.from_json)


def _cell_answer() -> Reader:
    from pharoah_benchmarks.campaign.cell import CellResult, read_answer
    from pharoah_protocol.vocabulary import Outcome

    return _message(
        CellResult(cell="c", outcome=Outcome.OK).to_json(), lambda packet: read_answer(packet.decode(errors="replace"))
    )


def _measure_order() -> Reader:
    from pharoah_benchmarks.micro import MeasureOrder

    good = MeasureOrder(benchmark="b", repeats=1, limit_seconds=1.0).to_json()
    return _message(good, lambda packet: MeasureOrder.from_json(packet.decode(errors="replace")))


def _row_of_a_listing() -> Reader:
    from pharoah_provider.cli._calls import read_row

    return _message('{"a": 1}', lambda packet: read_row(packet.decode(errors="replace")))


def _ray_message() -> Reader:
    from pharoah_provider.campaigns.ray_messages import ClusterFailed, from_line, to_line

    return _message(to_line(ClusterFailed("no")), from_line)


def _clock() -> Reader:
    from pharoah_serving.time_guard import STATE_FILE, ClockState
    from pharoah_serving.time_guard import _read as read

    return Reader(STATE_FILE, _text(json.dumps(vars(ClockState()))), lambda path: read(path.parent))


def _high_water() -> Reader:
    from pharoah_provider.high_water import FILE, HighWater, Mark

    def good(path: Path) -> None:
        HighWater.begin(path.parent, Mark(origin="o"))

    return Reader(FILE, good, lambda path: HighWater(path.parent, "o", 1.0))


def _issued() -> Reader:
    from pharoah_provider.certificates import ISSUED, Authority

    def read(path: Path) -> Any:
        authority = Authority.__new__(Authority)
        authority.folder = path.parent
        return list(authority._issue())

    return Reader(ISSUED, _text('{"name": "agent/n", "serial": "1", "not_after": 1.0}\n'), read)


def _audit_log() -> Reader:
    from pharoah_serving.audit_log import verify

    return Reader("audit-2024-01-01.jsonl", _text(""), verify)


def _node_verdict() -> Reader:
    from pharoah.sidecar.node_verdicts import _read_one

    return Reader("1.json", _text("{}"), _read_one)


def _log_memory() -> Reader:
    from pharoah.sidecar.log_client import LogClient

    def read(path: Path) -> Any:
        client = LogClient.__new__(LogClient)
        client._file = path
        return client._read_remembered()

    return Reader("log.json", _text('{"trail": {"size": 0, "subtrees": [], "entries": []}}'), read, True)


def _dry_run_report() -> Reader:
    from pharoah.dryrun.reports import ReportKind, ReportLine

    return _message(ReportLine(next(iter(ReportKind)), "", ()).to_json(), ReportLine.from_json)


def _public_key() -> Reader:
    from pharoah_protocol.tables.epoch_head import read_public_key

    return Reader("provider.pub", _text(KEY.hex()), read_public_key)


def _witness_list() -> Reader:
    from pharoah_provider.witnesses import read_witnesses

    return Reader("witnesses", _text("# none\n"), read_witnesses)


def _deny_list() -> Reader:
    from pharoah_serving.peer_certificates import _serials

    return Reader("denied", _text("0a  # n\n"), _serials)


def _token_list() -> Reader:
    from pharoah_serving.tokens import Tokens

    def read(path: Path) -> Any:
        path.chmod(0o600)
        return Tokens(path)

    return Reader("tokens", _text(f"tenant acme sha256:{'0' * 64}\n"), read)


def _host_file() -> Reader:
    from pharoah.launchers.mpirun import _list_hosts

    return Reader("hosts", _text("n1 slots=2\n"), lambda path: _list_hosts({"hostfile": str(path)}))


def _error_line() -> Reader:
    """A line of a log, as the command backfill and the sidecar attribute it."""
    from pharoah_protocol.attribution import rules
    from pharoah_protocol.vocabulary import EndState

    def read(content: bytes) -> Any:
        return rules().cause(EndState.FAILED, content.decode(errors="replace").splitlines())

    return _message("KeyError: 'x'\n", read)


def _control() -> Reader:
    """What replaying a step was: a name out of a file is followed from `torch.ops`, and called."""
    import torch

    def read(content: bytes) -> Any:
        order = json.loads(content)
        found: Any = reduce(getattr, order["operator"].split("."), torch.ops)
        return found(*order["args"])

    return _message('{"operator": "aten.mm.default.name", "args": []}', read)


CONTROL = "control"
"""A reader that runs what a file says: the oracle must see it."""
READERS: dict[str, Callable[[], Reader]] = {
    "saved step": _step,
    "replay result": _replay_result,
    "record": _record,
    "evidence": _evidence,
    "audit bundle": _bundle,
    "portable table": _portable_table,
    "campaign": _campaign,
    "profile": _profile,
    "profile of a call": _profile_of_a_call,
    "workload": _workload,
    "environment": _environment,
    "column map": _column_map,
    "past runs, csv": _past_runs("csv", "runs.csv", _text(TABLE)),
    "past runs, gzip": _past_runs("csv", "runs.csv.gz", _text(gzip.compress(TABLE.encode()))),
    "past runs, parquet": _past_runs("csv", "runs.parquet", _parquet),
    "past runs, sacct": _past_runs("sacct", "jobs", _text(SACCT)),
    "past runs, superbench": _past_runs("superbench", "results.jsonl", _text('{"node": "n", "a/return_code": 0}\n')),
    "superbench rules": _superbench("rules", "rules.yaml", RULES),
    "superbench results": _superbench("results", "results.jsonl", '{"node": "n", "a/b": 1}\n'),
    "superbench baseline": _superbench("baseline", "baseline.json", '{"a/b": 1}'),
    "trace, kineto": _trace("a.json", KINETO.encode()),
    "trace, gzip": _trace("a.json.gz", gzip.compress(KINETO.encode())),
    "trace, tar": _trace("a.tar.gz", _tar()),
    "trace, execution": _trace("b.json", EXECUTION.encode()),
    "trace, chakra": _trace("a.et", CHAKRA),
    "xid catalogue": _xids,
    "local message": _local_message,
    "ticket": _ticket,
    "hazard model": _hazard_model,
    "fingerprint": _fingerprint,
    "answer of a cell": _cell_answer,
    "order of a measurement": _measure_order,
    "row of a listing": _row_of_a_listing,
    "ray message": _ray_message,
    "clock state": _clock,
    "high water": _high_water,
    "issued certificates": _issued,
    "audit log": _audit_log,
    "verdict of a node": _node_verdict,
    "memory of the log": _log_memory,
    "report of a dry run": _dry_run_report,
    "public key": _public_key,
    "witness list": _witness_list,
    "deny list": _deny_list,
    "token list": _token_list,
    "host file": _host_file,
    "error line": _error_line,
    CONTROL: _control,
}
"""All readers by name."""
