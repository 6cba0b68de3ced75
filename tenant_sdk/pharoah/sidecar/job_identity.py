"""The id that all runs of one job share: one run per node, joined by the job's own rendezvous.

Nodes do not talk to each other for Pharoah. They compute the id from variables of torchrun or Slurm that are the same
on all of them, and from a secret of the user, where there is one.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Mapping
from pathlib import Path

from pharoah._settings import Settings

log = logging.getLogger("pharoah.sidecar")

JOB_ID_BYTES = 16
_DOMAIN = "pharoah/job-id/v1"


def job_id(environ: Mapping[str, str], settings: Settings) -> bytes:
    """The id; empty for a job on one node, which needs none, and where it cannot be computed.

    Without `job_secret_file` the id is a plain hash: the provider can test guesses of the rendezvous' name.
    """
    parts = _rendezvous(environ)
    if not parts:
        return b""
    try:
        secret = Path(settings.job_secret_file).read_bytes() if settings.job_secret_file else b""
    except OSError as error:
        # An id without the secret would be another one than on the nodes that can read it, and easier to guess.
        log.warning("PHAROAH_JOB_SECRET_FILE %s: %s; the nodes of this job are not joined", error.filename, error)
        return b""
    return hmac.digest(secret, "\0".join((_DOMAIN, *parts)).encode(), "sha256")[:JOB_ID_BYTES]


def _rendezvous(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What the launcher gives all nodes of a job and no other job at the same time; empty for a job on one node."""
    if _number(environ, "GROUP_WORLD_SIZE") > 1:
        names: tuple[str, ...] = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    elif max(_number(environ, "SLURM_STEP_NUM_NODES"), _number(environ, "SLURM_NNODES")) > 1:
        names = ("SLURM_JOB_ID", "SLURM_STEP_ID")
    else:
        return ()
    values = tuple(environ.get(name, "") for name in names)
    return (names[0], *values) if all(values) else ()


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    return int(text) if text.isdecimal() else 0
