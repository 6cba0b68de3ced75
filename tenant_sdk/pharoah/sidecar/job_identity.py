"""Which job this is, and which of its nodes: all nodes of a job share an id, which its own rendezvous gives.

Nodes do not talk to each other for Pharoah. They compute the id from variables of torchrun or Slurm that are the same
on all of them, and from a secret of the user, where there is one.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pharoah._settings import Settings
from pharoah_system.bounded_reading import UnreadableInput, read_content

log = logging.getLogger("pharoah.sidecar")

JOB_ID_BYTES = 16
_DOMAIN = "pharoah/job-id/v1"


@dataclass(frozen=True)
class JobIdentity:
    """A job and one of its nodes."""

    job_id: bytes = b""
    """The same on all nodes of the job; empty for a job on one node, which needs none, and where it is not known."""
    node: int = 0
    """Number of this node in the job, from 0 on."""
    nodes: int = 1
    """How many nodes the job has."""


def job_identity(environ: Mapping[str, str], settings: Settings) -> JobIdentity:
    """Which job and which of its nodes a launcher has started.

    Without `job_secret_file` the id is a plain hash: the provider can test guesses of the rendezvous' name.
    """
    nodes, number, names = _rendezvous(environ)
    values = tuple(environ.get(name, "") for name in names)
    if nodes < 2 or not all(values):
        return JobIdentity()
    try:
        secret = read_content(Path(settings.job_secret_file)) if settings.job_secret_file else b""
    except (OSError, UnreadableInput) as error:
        # An id without the secret would be another one than on the nodes that can read it, and easier to guess.
        log.warning("PHAROAH_JOB_SECRET_FILE: %s; the nodes of this job are not joined", error)
        return JobIdentity()
    found = hmac.digest(secret, "\0".join((_DOMAIN, names[0], *values)).encode(), "sha256")
    return JobIdentity(found[:JOB_ID_BYTES], number, nodes)


def _rendezvous(environ: Mapping[str, str]) -> tuple[int, int, tuple[str, ...]]:
    """The number of nodes, the number of this one, and the variables that all nodes of a job share with no other job
    that runs at the same time."""
    nodes = _number(environ, "GROUP_WORLD_SIZE")
    if nodes > 1:
        return nodes, _number(environ, "GROUP_RANK"), ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    nodes = max(_number(environ, "SLURM_STEP_NUM_NODES"), _number(environ, "SLURM_NNODES"))
    return nodes, _number(environ, "SLURM_NODEID"), ("SLURM_JOB_ID", "SLURM_STEP_ID")


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0
