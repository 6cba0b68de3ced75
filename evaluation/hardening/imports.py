"""How much processor time commands take until they have asked their question, or have read their small file.

Each command runs as a user runs it. A provider's socket is there, and closes every connection; the files are small and,
but for one table, wrong. So a command loads what it uses, asks or reads, and ends. The time of Python alone is taken
off.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from evaluation.figures import Figures
from pharoah_provider.listings import LISTINGS
from tests.architecture.test_imports import QUESTIONS
from tests.harness.tokens import write_token

REPEATS, REPEATS_QUICK = 3, 1
MAX_SECONDS = 0.5
PROVIDER, AGENT, AUDITOR = "pharoah_provider.cli", "pharoah_provider.agent.cli", "pharoah_auditor.cli"
TENANT = "pharoah"


def measure(figures: Figures, quick: bool, _: int) -> None:
    """Add the figures of this part."""
    repeats = REPEATS_QUICK if quick else REPEATS
    with _refusing() as folder:
        environ = _environment(folder)
        alone = _processor_seconds([sys.executable, "-P", "-c", "pass"], environ, folder, repeats)
        found = {}
        for name, module, words in _commands(folder):
            command = [sys.executable, "-P", "-m", module, *words]
            found[name] = _processor_seconds(command, environ, folder, repeats) - alone
            print(f"  {name:40} {found[name]:.3f} s", flush=True)
    largest = max(found.values())
    figures.details["imports"] = found
    figures.add("command_import_seconds", largest, f"<= {MAX_SECONDS:g}", largest <= MAX_SECONDS)
    figures.add("commands_timed", len(found))


def _commands(folder: Path) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Name, module and words of every command that asks a provider or an agent, or reads a file."""
    where = ["--endpoint", f"unix:{folder}/provider.sock", "--token-file", str(folder / "token")]
    for name, words in QUESTIONS.items():
        yield f"pharoah-provider {name}", PROVIDER, [name, *words, *where]
    for listing in LISTINGS:
        yield f"pharoah-provider {listing.name}", PROVIDER, [listing.name, *where]
    yield "pharoah-provider table show", PROVIDER, ["table", "show", "1", *where]
    yield "pharoah-provider table export", PROVIDER, ["table", "export", "out.csv", *where]
    words = ["table", "import", "wrong.json", "--from", "x", "--key", "key.pub"]
    yield "pharoah-provider table import", PROVIDER, [*words, *where]
    yield "pharoah-provider campaign plan", PROVIDER, ["campaign", "plan", "campaign.toml", *where]
    yield "pharoah-provider backfill", PROVIDER, ["backfill", "wrong.json", "--map", "wrong.json"]
    words = ["backfill", "runs.csv", "--map", "map.toml", "--preview"]
    yield "pharoah-provider backfill of a table", PROVIDER, words
    yield "pharoah-provider archetypes mine", PROVIDER, ["archetypes", "mine", "traces"]
    yield "pharoah-provider key", PROVIDER, ["key", "--keys", "keys"]
    yield "pharoah-agent check", AGENT, ["check", "--socket", str(folder / "provider.sock")]
    for verb in ("verify", "replay"):
        yield f"pharoah-auditor {verb}", AUDITOR, [verb, "wrong.json", "--provider-key", "key.pub"]
    for words in (["status"], ["status", "--ended"], ["findings"], ["compare", "wrong.json", "wrong.json"],
                  ["audit", "wrong.json"], ["audit"], ["reveal", "ab"], ["replay", "wrong.json"],
                  ["documented", "torch=2.6.0"]):  # fmt: skip
        yield f"pharoah {' '.join(words)}", TENANT, words


@contextmanager
def _refusing() -> Iterator[Path]:
    """A folder with small files, and a socket that closes each connection."""
    with tempfile.TemporaryDirectory(prefix="imports-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "wrong.json").write_text("{")
        (folder / "key.pub").write_text("ab" * 32 + "\n")
        (folder / "campaign.toml").write_text('[[workload]]\nname = "mlp"\n')
        (folder / "runs.csv").write_text("model,state\nours,yes\n")
        (folder / "map.toml").write_text('model = "model"\n[end_state]\ncolumn = "state"\nvalues = { yes = "ok" }\n')
        (folder / "traces").mkdir()
        (folder / "traces" / "wrong.json").write_text("{")
        write_token(folder / "token", f"operator ops {'o' * 32}")
        with socket.socket(socket.AF_UNIX) as served:
            served.bind(str(folder / "provider.sock"))
            served.listen()
            threading.Thread(target=_close_all, args=(served,), daemon=True).start()
            yield folder
            with suppress(OSError):
                served.shutdown(socket.SHUT_RDWR)


def _close_all(served: socket.socket) -> None:
    with suppress(OSError):
        while True:
            served.accept()[0].close()


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PHAROAH_")}
    return {
        **inherited,
        "PHAROAH_ENDPOINT": f"unix:{folder}/provider.sock",
        "PHAROAH_TOKEN_FILE": str(folder / "token"),
        "PHAROAH_PROVIDER_KEY_FILE": str(folder / "key.pub"),
        "PHAROAH_STATE_DIR": str(folder / "state"),
    }


def _processor_seconds(command: Sequence[str], environ: Mapping[str, str], folder: Path, repeats: int) -> float:
    """The least processor time of a command with all that it starts."""
    times = []
    for _ in range(repeats):
        process = subprocess.Popen(
            command, env=environ, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        times.append(used.ru_utime + used.ru_stime)
    return min(times)
