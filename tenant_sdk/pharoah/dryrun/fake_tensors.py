"""Fake tensors around a script: shapes without memory, for one training step.

Runs in the dry-run child only: it patches torch in ways a training process must not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pharoah.capture import recorder as capture
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.fake_process_group import pretend_world
from pharoah.dryrun.patches import (
    follow_resizes,
    load_data_in_this_process,
    rebind_parameters,
    save_without_values,
    skip_guards,
    skip_initialisation,
)
from pharoah.dryrun.placeholder_values import ReadablePlaceholders, print_unknown_sizes
from pharoah.dryrun.redirect import CudaToCpu, redirect
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.step_boundary import Window, before


@contextmanager
def fake_step(seen: Callable[[DryRun, bool], None], undecided: Callable[[str], None]) -> Iterator[None]:
    """Inside, tensors are fake and recorded; the end of the second step raises Finished.

    `seen` is told of the first step (not final: it begins with whatever the script did before) and of the second.
    `undecided` is told when the script asks for a value that fakes do not have, before an exception says the same.
    """
    recorder = DryRecorder()
    window = Window(recorder, seen, undecided)
    register_optimizer_step_pre_hook(window.begin)
    register_optimizer_step_post_hook(window.end)
    before(torch.optim.Optimizer, "__init__", window.made)
    before(torch.autograd, "backward", window.differentiate)
    load_data_in_this_process(recorder)
    follow_resizes(recorder)
    print_unknown_sizes()
    rebind_parameters()
    skip_initialisation()
    skip_guards(FakeTensorMode, capture.Recorder, DryRecorder)
    warnings.simplefilter("ignore")
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    save_without_values(fakes)
    with fakes:
        pretend_world()
        redirect(recorder.ledger)  # fakes ask for a GPU when they begin: answer from here on
        with CudaToCpu(recorder.ledger), ReadablePlaceholders(undecided, recorder.written), recorder:
            yield
