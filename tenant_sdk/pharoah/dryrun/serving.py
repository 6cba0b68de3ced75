"""Jobs that serve, in a dry run: what their models compute for one request is the step.

Until an optimizer is made or a backward pass begins, calls of models may be those of a job that serves. They are
recorded, and are the result when the script ends without having trained. Earlier than that, the second step is the
result if nothing in the script's own source trains a model: a service never ends. Runs in the dry-run child only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from pharoah.capture import recorder as capture
from pharoah.capture.serving_steps import Caller, ServingSteps, around_calls, positions_of
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.redirect import was_compiled
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.settings import settings_of
from pharoah.dryrun.step_boundary import Finished
from pharoah.dryrun.step_cost import StepCostBuilder
from pharoah.dryrun.training_words import script_may_train

ENOUGH_STEPS = 2
"""Every further step is equal to the second one: the first one may lack what only later ones do."""
GENERATING_SECONDS = 10.0
"""How long the generation of tokens is followed. Every token after the first is computed the same way."""


class ServingWindow:
    """Records the calls of models until the job turns out to train."""

    def __init__(self, recorder: DryRecorder, cost: StepCostBuilder, report: Callable[[DryRun, bool], None]) -> None:
        """`report` gets the result."""
        self._recorder, self._cost, self._report = recorder, cost, report
        self._steps = ServingSteps()
        self._models: list[torch.nn.Module] = []
        self._trains = False
        self._ended = 0
        """Number of steps that have ended."""
        self._found: DryRun | None = None
        self._tokens = 0
        self._tokens_began = 0.0

    def install(self) -> None:
        """Patch torch for the rest of the process."""
        around_calls(self._call)

    def train(self) -> None:
        """The script trains: what was recorded was an evaluation."""
        self._trains = True
        self._recorder.served.clear()

    def end_stated(self) -> None:
        """The script says that a step is over."""
        if self._trains:
            return
        if not self._steps.are_stated:
            self._ended = -1  # what ends now began with the script
        self._end()
        self._steps.end_stated()

    def finish(self) -> None:
        """The script has ended. Raises Finished if it has served."""
        if not self._trains:
            self._end()
            self._finish()

    def _call(self, original: Caller, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._trains:
            return original(model, *args, **kwargs)
        call = self._steps.call(model, positions_of(args, kwargs))
        if call.begins_step:
            self._end()
        if all(model is not known for known in self._models):
            self._models.append(model)
        self._recorder.serves = call.is_new
        try:
            return original(model, *args, **kwargs)
        finally:
            self._recorder.serves = False
            if call.is_token:
                self._generate()

    def _generate(self) -> None:
        """One more token was computed."""
        self._tokens_began = self._tokens_began or time.monotonic()
        self._tokens += 1
        if time.monotonic() - self._tokens_began > GENERATING_SECONDS and not script_may_train():
            self._end()
            self._finish()

    def _end(self) -> None:
        """A step is over."""
        records = self._recorder.served
        if records and not self._recorder.broken:
            try:
                found = capture.serving_fingerprint(records, self._models, compiled=was_compiled())
            except ValueError:
                found = None  # data was prepared, or a metric computed
            if found:
                self._found = self._result(found)
                self._ended += 1
        records.clear()
        self._tokens, self._tokens_began = 0, 0.0
        self._cost.begin_serving()
        if self._ended >= ENOUGH_STEPS and not script_may_train():
            self._finish()

    def _result(self, fingerprint: Any) -> DryRun:
        tokens = f"the cost is that of a request with {self._tokens} calls for one more token"
        parameters = [parameter for model in self._models for parameter in model.parameters()]
        return DryRun(
            fingerprint,
            self._cost.serving_cost(parameters),
            settings_of((), self._recorder.loaders),
            (tokens,) if self._tokens else (),
        )

    def _finish(self) -> None:
        if self._found:
            self._report(self._found, True)
            raise Finished(self._found.fingerprint)
