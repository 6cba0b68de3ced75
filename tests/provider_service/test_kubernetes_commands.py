"""The line that returns a node of Kubernetes to service runs in a real shell, with a `kubectl` of the test."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from pharoah_provider.schedulers import SCHEDULERS, NodeOrder, commands

KUBECTL = """#!/bin/sh
if [ "$1" = get ]; then
    [ "$3" = n1 ] || { echo "nodes $3 not found" >&2; exit 1; }
    printf '%s' "$TAINTS"
else
    echo "$@"
    [ "$1" != "$FAILING" ] || { echo "$1 is forbidden" >&2; exit 1; }
fi
"""
TAINT = "pharoah.dev/drained"
UNTAINTED = f"taint nodes n1 {TAINT}:NoSchedule-"
ANNOTATED = f"annotate nodes n1 {TAINT}-"


class Done(NamedTuple):
    """What a line did."""

    status: int
    calls: list[str]
    """What `kubectl` changed."""
    errors: str


def returned(folder: Path, taints: str, node: str = "n1", failing: str = "") -> Done:
    """What returning a node does, where `kubectl` fails at one of its commands."""
    (folder / "kubectl").write_text(KUBECTL)
    (folder / "kubectl").chmod(0o755)
    [line] = commands(SCHEDULERS["kubernetes"], [NodeOrder(node, False)])
    environ = {"PATH": str(folder), "TAINTS": taints, "FAILING": failing}
    done = subprocess.run(["/bin/sh", "-c", line], env=environ, capture_output=True, text=True)
    return Done(done.returncode, done.stdout.splitlines(), done.stderr)


@pytest.mark.parametrize(
    ("taints", "calls"),
    [
        (TAINT, [UNTAINTED, ANNOTATED]),
        (f"example.com/gpu {TAINT} other", [UNTAINTED, ANNOTATED]),
        ("", [ANNOTATED]),
        (f"x{TAINT} {TAINT}.old", [ANNOTATED]),
    ],
)
def test_only_our_taint_is_removed_and_the_reason_always(tmp_path: Path, taints: str, calls: list[str]) -> None:
    assert returned(tmp_path, taints) == Done(0, calls, "")


@pytest.mark.parametrize(
    ("node", "failing", "message"),
    [
        ("n2", "", "nodes n2 not found"),
        ("n1", "taint", "taint is forbidden"),
        ("n1", "annotate", "annotate is forbidden"),
    ],
)
def test_a_node_that_cannot_be_returned_is_no_success(tmp_path: Path, node: str, failing: str, message: str) -> None:
    done = returned(tmp_path, TAINT, node, failing)
    assert done.status == 1 and message in done.errors
