"""The step clock: times steps, sends what it saw, and has the operators of one step captured early in the run.

This runs in the training loop. Per step: one clock reading, one append, now and then one non-blocking send. No lock,
no thread, no synchronisation with a device.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pharoah._rank_identity import rank
from pharoah._sidecar_link import SidecarLink
from pharoah.capture.single_step import Captured, OneStep, inside_backward
from pharoah.replay.save_step import SaveStep
from pharoah_protocol.rank_messages import Capture, Steps
from pharoah_system.process_memory import resident_bytes

if TYPE_CHECKING:
    from pharoah.capture.served_models import ServedModels

log = logging.getLogger("pharoah")

CAPTURE_AFTER_STEP = 3
"""Distributed wrappers settle their buckets in step 2; capture comes after."""
SEND_EVERY_NS = 250_000_000
SERVING_AFTER_STEPS = 2
"""Calls of `session.step()` without a step of an optimizer, after which the job is taken for one that serves."""
FORGOTTEN_AFTER = 100
"""Steps of one other optimizer without one of the first."""
MAX_PARTS = 1000
"""Parts of its parameters that one optimizer may update one after the other in a training step, as far as they are
followed. Their identities are kept."""


class StepClock:
    """Times the steps of this rank.

    A step is what lies between two calls of the first source seen: `session.step()` or an optimizer's step. Calls of
    the other source are ignored, so that a script that has both counts each step once. The steps of a job that serves
    are made of calls of its models (`pharoah.capture.served_models`), also where it says itself where they end.
    """

    def __init__(
        self,
        link: SidecarLink,
        capture_every: int = 0,
        step_file: str = "",
        now: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """With `capture_every` a step is captured again after so many steps; with `step_file` one is saved there.
        `now` gives nanoseconds."""
        self._link = link
        self._capture_every = capture_every
        self._now = now
        self.serves = False
        """Whether a dry run has found that the job serves."""
        self._models: ServedModels | None = None
        self._source = ""
        self._steps = 0
        self._last = 0
        self._sent = 0
        self._durations: list[int] = []
        self._resident = 0
        """Memory of this process when it could be read last."""
        self._thread = 0
        """The one that steps; the one that ends the job may be another one."""
        self._capture = OneStep()
        self._switch_is_due = False
        """Whether the capture is to begin or to end as soon as no node of autograd is being computed."""
        self._save = SaveStep(step_file)
        self._saves = bool(step_file)
        self._slowed = False
        """Whether anything was recorded or saved since the last step was over, which takes time."""
        self._cycle = Cycle()

    @property
    def steps(self) -> int:
        return self._steps

    def tick(self, source: str, optimizer: Any = None) -> None:
        """A step is over. Never raises."""
        now = ended = self._now()
        try:
            if source == "session":
                self._state()
            elif self._models is not None:  # the job trains after all
                self._drop_models()
            completes = source != "optimizer" or self._cycle.is_completed_by(optimizer)
            self._slowed = self._slowed or self._capture.recording or self._save.active
            if self._capture_step(optimizer, completes) if source == "optimizer" else self._switch():
                now = self._now()
            self._source = self._source or source
            if source != self._source or not completes:
                return
            if self._last and not self._slowed:
                self._durations.append(ended - self._last)
            self._slowed = self._capture.recording
            self._steps += 1
            if now - self._sent > SEND_EVERY_NS:
                self._thread = threading.get_native_id()
                self._send(now)
        except Exception as fault:  # noqa: BLE001 - hot path: ours must not reach the training loop
            log.debug("step clock: %s", fault)
        self._last = now

    def watch_models(self) -> None:
        """From now on calls of models are the steps of this job, or belong to them."""
        from pharoah.capture.served_models import ServedModels  # here: it imports torch

        if self._models is None:
            self._models = ServedModels(self._serve, self._send_capture, is_known=self.serves)
            self._models.install()

    def optimizer_begins(self, closure: bool, is_inner: bool = False) -> None:
        """An optimizer steps; with a `closure` it computes forward and backward inside. Its step `is_inner` where the
        step of an optimizer calls it."""
        try:
            self._capture.pause(closure, is_inner)
        except Exception as fault:  # noqa: BLE001 - hot path: ours must not reach the training loop
            log.debug("capture: %s", fault)

    def inner_stepped(self, optimizer: Any) -> None:
        """An optimizer has stepped inside the step of an optimizer, which is the one that counts."""
        try:
            if self._capture.active:
                self._capture.note_step(optimizer, is_inner=True)
        except Exception as fault:  # noqa: BLE001 - hot path: ours must not reach the training loop
            log.debug("capture: %s", fault)

    def abandon(self) -> None:
        """In a forked child: a capture under way belongs to the parent."""
        try:
            self._capture.drop()
            self._save.drop()
            self._drop_models()
        except Exception as fault:  # noqa: BLE001 - a child of the user's
            log.debug("capture: %s", fault)

    def flush(self) -> None:
        """The job is over."""
        self._save.drop()
        self._send(self._now())

    def _state(self) -> None:
        """The script has called `session.step()`."""
        if self._models is not None:
            self._models.end_stated()
        elif self._steps == SERVING_AFTER_STEPS and not self._cycle.count and "torch" in sys.modules:
            self.watch_models()

    def _drop_models(self) -> None:
        if self._models is not None:
            self._models.remove()
            self._models = None
            self._source = "" if self._source == "models" else self._source

    def _serve(self, nanoseconds: int, may_train: bool) -> None:
        """A step of calls of models took so long. A job that says where its steps end, and cannot train in them,
        serves: it may wait for a request between two of them."""
        if not self._source or (self._source == "session" and not may_train):
            self._source = "models"
        if self._source == "models":
            self._durations.append(nanoseconds)
            self._steps += 1
            if (now := self._now()) - self._sent > SEND_EVERY_NS:
                self._thread = threading.get_native_id()
                self._send(now)

    def _send_capture(self, seen: Captured) -> None:
        self._link.send(Capture(rank(), seen.fingerprint, seen.operators))

    def _send(self, now: int) -> None:
        durations, self._durations, self._sent = self._durations, [], now
        if durations:
            self._resident = resident_bytes() or self._resident
            self._link.send(Steps(rank(), durations, self._resident, self._thread))

    def _capture_step(self, optimizer: Any, completes: bool) -> bool:
        """On after the third cycle, off after the fourth; then again as often as wanted. Whether this took time.

        Where optimizers step inside of the backward pass, a capture begins and ends at the next step of another one,
        or at the next `session.step()`: the end of a node of autograd takes back what is done there."""
        if completes and self._saves and not inside_backward() and self._save.has_completed(self._cycle.count):
            return True
        if self._capture.active:
            self._capture.note_step(optimizer)
            self._switch_is_due = self._switch_is_due or completes
            self._switch()
            return True
        self._switch_is_due = self._switch_is_due or (completes and self._is_due())
        return self._switch()

    def _switch(self) -> bool:
        """Begin or end the capture where this is due and possible. Whether this took time."""
        if not self._switch_is_due or inside_backward():
            return False
        self._switch_is_due = False
        try:
            if not self._capture.active:
                self._capture.enter()
            elif seen := self._capture.leave():
                self._send_capture(seen)
        except Exception as fault:  # noqa: BLE001 - the step counts all the same
            log.debug("capture: %s", fault)
        return True

    def _is_due(self) -> bool:
        count, every = self._cycle.count, self._capture_every
        return count == CAPTURE_AFTER_STEP or (every > 0 and count > every and count % every == CAPTURE_AFTER_STEP)


class Cycle:
    """Which optimizer's steps end a training step: the first one seen, so that several do not count several times.

    An optimizer that is gone, or stands still while one other steps on and on (a new phase of training), is followed
    by its successor, also where a third one stands still as well. Some frameworks let one optimizer step several times,
    for other parameters each time (ZeRO of DeepSpeed steps for each group of parameters): then it ends a training step
    when it updates the parameter again that came first, or any other one twice before that. Optimizers and parameters
    are not kept alive. Parameters are known by their identity: torch refuses to swap a tensor that somebody refers to
    weakly (`torch.utils.swap_tensors`), as `model.to()` does with the parameters of FSDP2.
    """

    def __init__(self) -> None:
        self.count = 0
        self._first: weakref.ref[Any] | None = None
        self._rival: weakref.ref[Any] | None = None
        self._rival_steps = self._other_steps = 0
        """Steps of the rival, and those of others since its last one, without one of the first."""
        self._part: int | None = None
        """Identity of the first of the parameters that were updated when the last training step ended."""
        self._other_parts: set[int] = set()
        """Identities of those that came first in steps since then."""

    def is_completed_by(self, optimizer: Any) -> bool:
        """Whether this step of this optimizer ends a training step."""
        if self._first is None or self._first() is None:
            self._first, self._part = weakref.ref(optimizer), None
        if self._first() is not optimizer and not self._succeeds(optimizer):
            return False
        self._rival_steps = self._other_steps = 0
        if not self._begins_again(_first_parameter(optimizer)):
            return False
        self.count += 1
        return True

    def _begins_again(self, parameter: Any) -> bool:
        """Whether a step that updates this parameter first is not one of several for other parameters."""
        part = id(parameter)
        if self._part not in (None, part) and self._is_new_part(part):
            return False
        self._part = part
        self._other_parts.clear()
        return True

    def _is_new_part(self, part: int) -> bool:
        if part in self._other_parts or len(self._other_parts) >= MAX_PARTS:
            return False
        self._other_parts.add(part)
        return True

    def _succeeds(self, optimizer: Any) -> bool:
        if self._rival is None or self._rival() is None or self._other_steps > FORGOTTEN_AFTER:
            self._rival, self._rival_steps = weakref.ref(optimizer), 0
        if self._rival() is not optimizer:
            self._other_steps += 1
            return False
        self._rival_steps, self._other_steps = self._rival_steps + 1, 0
        if self._rival_steps <= FORGOTTEN_AFTER:
            return False
        self._first, self._rival, self._part = self._rival, None, None
        return True


def _first_parameter(optimizer: Any) -> Any:
    """The first of the parameters that an optimizer updates now; None for none."""
    for group in getattr(optimizer, "param_groups", ()):
        for parameter in group["params"]:
            return parameter
    return None
