"""The module `pharoah.sidecar`, with SOCKET SETTINGS-JSON RUN-ID [DESCRIPTOR]; started by `pharoah run` and `register`.

The descriptor is standard error of the command, for what is said while the job runs.
"""

import asyncio
import json
import logging
import os
import resource
import signal
import sys
import threading
from pathlib import Path

from pharoah._guard import DEBUG
from pharoah._runtime_folder import remove_folder
from pharoah._settings import Settings
from pharoah.sidecar.job_identity import job_identity
from pharoah.sidecar.job_words import JobWords
from pharoah.sidecar.memory_watch import Leaving, MemoryWatch
from pharoah.sidecar.sidecar import Sidecar
from pharoah_system.log_lines import log_to_standard_error
from pharoah_system.standard_streams import say_uncaught_errors

log = logging.getLogger("pharoah.sidecar")

LEAVING_SECONDS = 10.0
"""How long threads may take after the end, which write to a file system that may not answer. Python waits for them."""


def main() -> None:
    say_uncaught_errors()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a job may ignore it, and then nobody knows how our children end
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # each rank has three connections
    path, settings, run_id = Path(sys.argv[1]), Settings(**json.loads(sys.argv[2])), sys.argv[3]
    log_to_standard_error(logging.DEBUG if os.environ.get(DEBUG) else logging.WARNING)
    own_id = bytes.fromhex(run_id) if run_id else os.urandom(16)
    words = JobWords(settings, int(sys.argv[4])) if sys.argv[4:] else None
    memory = MemoryWatch(os.getpid(), lambda leaving: _leave(path, words, leaving))
    sidecar = Sidecar(path, settings, own_id, job_identity(os.environ, settings), words, memory.begin)
    asyncio.run(_serve(sidecar, path))
    memory.end()


def _leave(path: Path, words: JobWords | None, leaving: Leaving) -> None:
    """End at once: the job needs the memory. The end of its run is not reported then, as if this were killed."""
    log.warning("%s", leaving)
    if words is not None:
        words.leaving(str(leaving))
    remove_folder(path)
    os._exit(0)


async def _serve(sidecar: Sidecar, path: Path) -> None:
    try:
        await sidecar.serve()
    finally:
        remove_folder(path)
        leaving = threading.Timer(LEAVING_SECONDS, os._exit, [0])
        leaving.daemon = True
        leaving.start()


if __name__ == "__main__":
    main()
