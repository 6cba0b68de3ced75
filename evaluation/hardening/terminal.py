"""Text of others on terminals and in logs: every command that prints some, against a provider and files full of codes.

The provider is a real gRPC server on a Unix socket (`hostile_texts`): it refuses, answers and babbles with terminal
codes. Each command runs as a user runs it, with its output in a file and once more on a terminal. What it writes is
read character by character: nothing but line ends, tabs and printable characters may be there, and on a terminal the
few codes that are ours. Outputs that show a word of the hostile text are counted, so that the attack is seen to arrive.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import grpc

from evaluation.figures import Figures
from evaluation.hardening.hostile_texts import CODES, MARK, NEW_LINE, TEXT, Manner, filled, hostile_provider
from pharoah.comparison.record import Record
from pharoah_protocol.agent_messages import NodeStateAnswer
from pharoah_protocol.incident_states import CONFIRMED
from pharoah_protocol.local_messages import encode
from pharoah_protocol.rpc import path, request_type
from pharoah_protocol.v1 import services
from pharoah_provider.listings import LISTINGS
from tests.architecture.test_imports import QUESTIONS
from tests.harness.hostile_agent import AgentAnswer, hostile_agent
from tests.harness.tokens import token_of, write_list, write_token

OURS = re.compile(r"\x1b\[(?:0|1|2)m|\r\n")
"""Codes that commands may write to a terminal: bold and dim headings of tables; a terminal adds `\\r` to line ends."""
SHOWN_GROUPS = ("choices", "settings", "software", "environment")
"""Groups of a record whose values are texts."""
SACCT = "JobID|JobName|State|ExitCode|NodeList|AllocTRES|Partition|AllocNodes|Start"
"""What `sacct --parsable2` prints first."""
COMMAND_SECONDS = 120.0
ROWS, COLUMNS = 40, 4_000
"""The terminal: wide, because a text that goes on in the next line of its cell has begun no line of its own."""
AGENT_SECONDS = 40.0
"""How long an agent runs: it starts a process with torch first, and connects then."""
SERVE_SECONDS = 60.0
OPERATOR = f"operator ops {'o' * 32}"
PROVIDER, AGENT, AUDITOR, TENANT = (
    "pharoah_provider.cli",
    "pharoah_provider.agent.cli",
    "pharoah_auditor.cli",
    "pharoah",
)
QUICK_LISTINGS = ("nodes", "alerts")


@dataclass(frozen=True)
class Shown:
    """What one command wrote."""

    name: str
    text: str

    @property
    def raw(self) -> list[str]:
        """Characters that a terminal obeys, as they are written in Python, and a line that others have begun."""
        codes = {ascii(one) for one in self.text if not one.isprintable() and one not in "\n\t"}
        return sorted(codes | ({NEW_LINE} if NEW_LINE in self.text else set()))


def measure(figures: Figures, quick: bool, _: int) -> None:
    """Add the figures of this part."""
    with tempfile.TemporaryDirectory(prefix="terminal-", dir="/tmp") as name:
        folder = Path(name)
        ways = (_against_provider(folder, quick), _of_files(folder), _of_agents(folder, quick), _of_serve(folder))
        shown = []
        for one in chain(*ways):
            shown.append(one)
            if one.raw:
                print(f"  RAW CODES: {one.name}: {', '.join(one.raw)}", flush=True)
    found = {one.name: one.raw for one in shown if one.raw}
    figures.details["terminal"] = found
    figures.add("raw_terminal_codes", sum(map(len, found.values())), "0", not found)
    figures.add("terminal_outputs", len(shown))
    foreign = sum(MARK in one.text for one in shown)
    figures.add("terminal_outputs_with_foreign_text", foreign, "> 0", foreign > 0)


def _against_provider(folder: Path, quick: bool) -> Iterator[Shown]:
    """Every command that asks the provider."""
    write_token(folder / "token", OPERATOR)
    (folder / "key.pub").write_text("ab" * 32 + "\n")
    (folder / "campaign.toml").write_text('[[workload]]\nname = "mlp"\n')
    (folder / "table.json").write_text("{}")
    manners = [(Manner.ANSWERS, CODES[0]), (Manner.BABBLES, CODES[0]), (Manner.REFUSES, CODES[0])]
    manners += [] if quick else [(Manner.REFUSES, code) for code in CODES[1:]]
    for number, (manner, code) in enumerate(manners):
        socket = folder / f"{number}.sock"
        with hostile_provider(socket, manner, code):
            for module, words, on_terminal in _questions(quick):
                asked = [*words, *(_where(folder, socket) if module == PROVIDER else [])]
                what = f"{manner} {code.name}: {module} {' '.join(words)}"
                yield Shown(what, _written(folder, socket, module, asked))
                if on_terminal and not quick:
                    yield Shown(f"{what} (terminal)", _on_terminal(folder, socket, module, asked))


def _questions(quick: bool) -> Iterator[tuple[str, Sequence[str], bool]]:
    """Module, words, and whether the command also runs on a terminal."""
    for name, words in QUESTIONS.items():
        yield PROVIDER, [name, *words], name in ("learn", "campaign", "drain-commands")
    for listing in QUICK_LISTINGS if quick else LISTINGS.entries:
        yield PROVIDER, [listing], True
        yield PROVIDER, [listing, "-o", "json"], False
    for words in (["table", "show", "1"], ["table", "show", "1", "-o", "json"], ["table", "export", "out.csv"],
                  ["table", "export", "out.json", "--portable"],
                  ["table", "import", "table.json", "--from", "x", "--key", "key.pub"],
                  ["campaign", "plan", "campaign.toml"], ["campaign", "run", "campaign.toml"],
                  ["campaign", "confirm", "--all"], ["campaign", "resume", "c1"], ["campaign", "cancel", "c1"],
                  ["draw", "sub-archetypes", "--out", "a.svg"],
                  ["draw", "node-hazards", "--out", "a.svg"]):  # fmt: skip
        yield PROVIDER, words, False
    for words in (["audit"], ["audit", "-o", "json"], ["doctor"]):
        yield TENANT, words, False
    job = ["--", sys.executable, "-c", "print('trains')"]
    yield TENANT, ["check", *job], True
    yield TENANT, ["run", *job], False


def _of_files(folder: Path) -> Iterator[Shown]:
    """Commands that read files which others have written, and files with names that others chose."""
    texts, socket = _hostile_files(folder), folder / "nobody.sock"
    for module, words in (
        *((TENANT, words) for name in texts for words in (
            ["compare", name, "other.json"], ["audit", name], ["replay", name], ["replay", "--with", name, name],
        )),
        *((AUDITOR, [verb, name, "--provider-key", key]) for name in texts for verb in ("verify", "replay")
          for key in ("key.pub", name)),
        *((PROVIDER, words) for name in texts for words in (
            ["backfill", name, "--map", "map.toml"], ["backfill", name, "--map", name],
            ["backfill", name, "--source", "sacct"],
            ["backfill", name, "--source", "superbench"], ["table", "import", name, "--from", "x", "--key", name],
            ["key", "--keys", name], ["nodes", "--token-file", name],
        )),
        (PROVIDER, ["archetypes", "mine", "hostile"]),
        (TENANT, ["status", "--ended"]), (TENANT, ["status", "--ended", "-o", "json"]), (TENANT, ["reveal", "ab"]),
    ):  # fmt: skip
        yield Shown(f"files: {module} {words!a}", _written(folder, socket, module, words))


def _hostile_files(folder: Path) -> list[str]:
    """Files of every kind with the text in their values, keys and names."""
    odd = TEXT.replace("/", "").replace("\x00", "")[:60]
    hostile, state = folder / "hostile", folder / "state" / "runs"
    hostile.mkdir()
    state.mkdir(parents=True, exist_ok=True)
    quoted, one_line = json.dumps(TEXT, ensure_ascii=False), TEXT.replace("\n", " ")
    records = [Record({group: {TEXT: f"{TEXT}{number}"} for group in SHOWN_GROUPS}) for number in (1, 2)]
    run = {"run": {"id": "ab" * 16, "command": TEXT, "state": TEXT, "began": 1.0}, **records[0].to_dict()}
    contents = {
        "record.json": json.dumps(run, ensure_ascii=False),
        "other.json": json.dumps(records[1].to_dict(), ensure_ascii=False),
        "broken.json": "{" + TEXT,
        "runs.csv": f'model,host,state,"{TEXT}"\n' + f'"{TEXT}","{TEXT}","failed","{TEXT}"\n' * 12,
        "sacct.txt": f"{SACCT}\n1|{one_line}|FAILED|1:0|{one_line}|{one_line}|{one_line}|1|2026-01-01T00:00:00\n",
        "results.jsonl": json.dumps({"node": TEXT, TEXT: 1.0}, ensure_ascii=False) + "\n",
        "text.toml": f"{quoted} = 1\n",
        f"{odd}.json": "[]",
    }
    for name, content in contents.items():
        for place in (folder, hostile, state):
            (place / name).write_text(content)
    (folder / "map.toml").write_text('model = "model"\nend_state = "state"\n[context]\ntext = "host"\n')
    return list(contents)


def _of_agents(folder: Path, quick: bool) -> Iterator[Shown]:
    """The agent's command against an agent that answers so, and the agent itself against the provider."""
    socket = folder / "agent.sock"
    state = NodeStateAnswer(state=CONFIRMED, since=1, evidence=TEXT, advice=TEXT)
    for name, line in (("evidence", encode(state)), ("text", json.dumps(TEXT).encode()), ("raw", TEXT.encode())):
        with hostile_agent(socket, AgentAnswer(name, line + b"\n")):
            yield Shown(f"check: {name}", _written(folder, socket, AGENT, ["check", "--socket", str(socket)]))
    write_token(folder / "n1.token", f"agent n1 {'1' * 32}")
    for manner in (Manner.REFUSES, *([] if quick else [Manner.ANSWERS])):
        provider = folder / f"of-{manner}.sock"
        with hostile_provider(provider, manner):
            words = ["run", "--node", "n1", "--endpoint", f"unix:{provider}", "--token-file", str(folder / "n1.token"),
                     "--socket", str(folder / "own.sock"), "--key", str(folder / "ticket.key")]  # fmt: skip
            yield Shown(f"agent: {manner}", _written(folder, provider, AGENT, words, AGENT_SECONDS))


def _of_serve(folder: Path) -> Iterator[Shown]:
    """The log of a real provider, of whom every method is called with the text in every field."""
    served = folder / "serve"
    served.mkdir(mode=0o700)
    tokens = [OPERATOR, f"tenant acme {'t' * 32}", f"agent n1 {'1' * 32}"]
    write_list(served / "tokens", tokens)
    socket = served / "p.sock"
    words = ["serve", "--listen", f"unix:{socket}", "--http", "127.0.0.1:0", "--init", "--db", str(served / "p.duckdb"),
             "--keys", str(served / "keys"), "--tokens", str(served / "tokens"),
             "--audit", str(served / "audit")]  # fmt: skip
    with (folder / "serve.log").open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", PROVIDER, *words],
            stdout=log,
            stderr=log,
            cwd=served,
            env=_environ(folder, socket),
        )
        try:
            _call_all(socket, tokens)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(SERVE_SECONDS)
        log.seek(0)
        yield Shown("serve", _text(log.read()))


def _call_all(socket: Path, tokens: Sequence[str]) -> None:
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        grpc.channel_ready_future(channel).result(SERVE_SECONDS)
        for token in tokens:
            metadata = (("authorization", f"Bearer {token_of(token)}"),)
            for method in (method for service in services() for method in service.methods):
                call = channel.stream_stream(path(method), None, None)
                request = filled(request_type(method)()).SerializeToString()
                try:
                    for _ in call(iter([request]), metadata=metadata, timeout=3.0):
                        pass
                except grpc.RpcError:
                    continue


def _where(folder: Path, socket: Path) -> list[str]:
    return ["--endpoint", f"unix:{socket}", "--token-file", str(folder / "token")]


def _environ(folder: Path, socket: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PHAROAH_")}
    return {
        **inherited,
        "PHAROAH_ENDPOINT": f"unix:{socket}",
        "PHAROAH_TOKEN_FILE": str(folder / "token"),
        "PHAROAH_PROVIDER_KEY_FILE": str(folder / "key.pub"),
        "PHAROAH_STATE_DIR": str(folder / "state"),
        "TERM": "xterm",
    }


def _written(folder: Path, socket: Path, module: str, words: Sequence[str], seconds: float = COMMAND_SECONDS) -> str:
    """What a command writes into a file, on both streams. It is ended where it goes on for longer."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            cwd=folder, env=_environ(folder, socket),
        )  # fmt: skip
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
        output.seek(0)
        return _text(output.read())


def _on_terminal(folder: Path, socket: Path, module: str, words: Sequence[str]) -> str:
    """What a command writes to a terminal, without the codes that are ours."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, *words], stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder,
        env=_environ(folder, socket),
    )  # fmt: skip
    os.close(theirs)
    read, deadline = b"", time.monotonic() + COMMAND_SECONDS
    try:
        while (time.monotonic() < deadline and select.select([ours], [], [], 1.0)[0]) or process.poll() is None:
            try:
                read += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return OURS.sub(lambda found: "\n" if found[0].endswith("\n") else "", _text(read))


def _text(content: bytes) -> str:
    """Bytes that are no text stay visible as characters that cannot be printed."""
    return content.decode(errors="surrogateescape")
