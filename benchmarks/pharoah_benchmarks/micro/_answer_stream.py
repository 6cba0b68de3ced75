"""The standard output of a worker, for its answers alone."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def answer_stream() -> TextIO:
    """What answers are written to. From now on, all else that is printed to the standard output goes to the standard
    error: libraries print there as well (NCCL_DEBUG, MKL_VERBOSE), and who reads answers would take it for one."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers
