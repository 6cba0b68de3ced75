"""Has one step of a running job saved: between two steps of its first optimizer, in the training loop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pharoah._rank_identity import rank
from pharoah.capture.single_step import top_mode
from pharoah.replay.warning import warn

SAVE_AFTER_STEP = 5
"""The step after is saved. Step 4 is captured, and modes do not nest."""


class SaveStep:
    """Saves step 6. None of it raises for reasons of the user's program."""

    def __init__(self, path: str) -> None:
        """Without a path nothing is saved."""
        self._path = path
        """Empty as well once the saving has begun."""
        self._saver: Any = None
        """It stays until it is off the stack of modes."""
        self._ended = False
        self._owner = os.getpid()

    @property
    def active(self) -> bool:
        """Whether the step that goes on is being saved, which takes time."""
        return self._saver is not None and not self._ended

    def has_completed(self, count: int) -> bool:
        """So many training steps are over, and the optimizer's step is not left yet. Whether this took time."""
        if self._saver is not None:
            self._end()
            return True
        if not self._path or count < SAVE_AFTER_STEP:
            return False
        path, self._path = self._path, ""
        try:
            self._enter(Path(path if not rank() else f"{path}.rank{rank()}"))
        except (OSError, ValueError) as error:
            warn(f"no step is saved in {path}: {error}")
        return True

    def drop(self) -> None:
        """End without a file, and say so: at the end of the job, or silently in a forked child."""
        if self._saver is not None:
            self._end("the job has ended before the end of its step 6")
        elif self._path and os.getpid() == self._owner:
            path, self._path = self._path, ""
            warn(f"no step is saved in {path}: no optimizer of this job has begun a step 6")

    def _end(self, reason: str = "") -> None:
        """Complete the file; with a `reason` none is left. What another mode lies on lets everything pass from now on,
        and is taken off as soon as that mode is gone."""
        saver = self._saver
        if top_mode() is saver:
            saver.__exit__(None, None, None)
            self._saver = None
        else:
            reason = reason or "a dispatch mode of the script lies on top"
        if self._ended:
            return
        self._ended = True
        if reason:
            saver.abandon(reason)
        if os.getpid() == self._owner:
            saver.finish()

    def _enter(self, path: Path) -> None:
        from pharoah.replay.step_saver import StepSaver
        from pharoah.torch_names import dispatch_modes

        if dispatch_modes():
            raise ValueError("the script has a dispatch mode of its own open")
        self._saver = StepSaver(path, rank())
        self._saver.__enter__()
