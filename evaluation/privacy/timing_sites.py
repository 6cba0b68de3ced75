"""Providers of the games about times, which write down when each message came, and the auditor of each.

Two have tables of different sizes, and one refuses questions.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from evaluation.figures import OUTPUT
from evaluation.privacy.exchange_site import ExchangeSite, exchange_site, release_for_node
from evaluation.privacy.synthetic_release import Universe
from evaluation.privacy.watching_provider import REFUSED
from pharoah_archetypes import Fingerprint, rung_tokens
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.release import Release
from pharoah_provider.certificates import Authority
from tests.harness.site import free_port

FOLDER = OUTPUT / "timing"
LARGE, SMALL, REFUSING = "16,384 rows", "16 rows", REFUSED
"""Tables of the providers; the first is as large as the universe allows in the short form."""


@dataclass
class Sites:
    """Providers that watch, and their logs."""

    at: dict[str, ExchangeSite]
    logs: dict[str, Path]
    auditors: dict[str, dict[str, str]]
    """Settings of the second key holder, by table."""


def jobs_of_grammar(universe: Universe, grammar: str) -> list[Fingerprint]:
    """Jobs of one archetype that the smallest table knows too, where there are any."""
    return [job for job in universe.jobs if job.grammar == grammar][:4]


@contextmanager
def sites(universe: Universe) -> Iterator[Sites]:
    """Two providers with tables of 16 and of 16,384 rows, each with an auditor of names, and one that refuses."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    whole = release_for_node(universe)
    grammars = (catalogue()[name].grammar for name in ("recurrent", "encoder_decoder"))
    tokens = {rung_tokens(job, "exact") for grammar in grammars for job in jobs_of_grammar(universe, grammar)}
    few = Release(1, tuple(row for row in whole.rows if row.tokens in tokens))
    at, logs, auditors = {}, {}, {}
    with ExitStack() as stack:
        for name, release in ((LARGE, whole), (SMALL, few), (REFUSING, few)):
            folder = FOLDER / name.replace(",", "").replace(" ", "-")
            folder.mkdir(parents=True)
            logs[name] = folder / "seen.jsonl"
            program = ("-m", "evaluation.privacy.watching_provider", str(logs[name]), name)
            at[name] = stack.enter_context(exchange_site(folder, release, program))
            auditors[name] = stack.enter_context(_auditor(folder))
        yield Sites(at, logs, auditors)


@contextmanager
def _auditor(folder: Path) -> Iterator[dict[str, str]]:
    """The auditor's process, which holds the second key of names; gives the tenant's settings."""
    files = Authority(folder / "pki", "pharoah.local").issue("auditor", ("127.0.0.1",))
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pharoah_auditor.cli", "pseudonyms", "--listen", address,
         "--folder", folder / "auditor", "--tls-cert", files.certificate, "--tls-key", files.key,
         "--client-ca", folder / "pki/ca.pem", "--pseudonyms-per-day", "1000000", "--init"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        line = next((line for line in process.stdout if "auditor key for tenants:" in line), "")
        if not line:
            raise RuntimeError("the auditor has not started")
        (folder / "auditor.pub").write_text(line.rpartition(":")[2].strip())
        yield {"auditor_endpoint": address, "auditor_key_file": str(folder / "auditor.pub")}
    finally:
        process.terminate()
        process.communicate()
