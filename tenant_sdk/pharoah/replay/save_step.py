"""Has one step of a running job saved: between two steps of its first optimizer, in the training loop."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from pharoah._rank_identity import rank
from pharoah.capture.single_step import top_mode

log = logging.getLogger("pharoah")

SAVE_AFTER_STEP = 5
"""The step after is saved. Step 4 is captured, and modes do not nest."""


class SaveStep:
    """Saves step 6. None of it raises for reasons of the user's program."""

    def __init__(self, path: str) -> None:
        """Without a path nothing is saved."""
        self._path = path
        self._saver: Any = None

    @property
    def active(self) -> bool:
        return self._saver is not None

    def completed(self, count: int) -> bool:
        """So many training steps are over, and the optimizer's step is not left yet. Whether this took time."""
        if self._saver is not None:
            if top_mode() is self._saver:
                saver, self._saver = self._saver, None
                saver.__exit__(None, None, None)
                saver.finish()
            else:
                self._saver.abandon()  # another mode lies on top; ours lets everything pass until it is gone
            return True
        if not self._path or count < SAVE_AFTER_STEP:
            return False
        path, self._path = self._path, ""
        try:
            self._enter(Path(path if not rank() else f"{path}.rank{rank()}"))
        except (OSError, ValueError) as error:
            log.warning("no step is saved in %s: %s", path, error)
        return True

    def drop(self) -> None:
        """End without a file: in a forked child, or at the end of the job."""
        if self._saver is not None:
            self._saver.abandon()
            if top_mode() is self._saver:
                self._saver.__exit__(None, None, None)
                self._saver = None

    def _enter(self, path: Path) -> None:
        import torch

        from pharoah.replay.step_saver import StepSaver

        if torch._C._len_torch_dispatch_stack():
            raise ValueError("the script has a dispatch mode of its own open")
        self._saver = StepSaver(path, rank())
        self._saver.__enter__()
