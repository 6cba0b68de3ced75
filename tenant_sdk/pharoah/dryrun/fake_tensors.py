"""Fake tensors around a script: shapes without memory, for one training step.

Runs in the dry-run child only: it patches torch in ways a training process must not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pharoah._errors import UnknownReason
from pharoah.capture import recorder as capture
from pharoah.capture.hardware import list_simulated_gpus
from pharoah.capture.hooks import on_stated_step
from pharoah.dryrun.backward_code import run_backward_in
from pharoah.dryrun.dry_recorder import DryRecorder
from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.fake_process_group import install_fake_process_group
from pharoah.dryrun.gpu_kernels import compute_as_gpus_do
from pharoah.dryrun.patches import (
    follow_resizes,
    load_data_in_this_process,
    make_sparse_tensors,
    rebind_parameters,
    save_without_values,
    separate_kinds_of_parameters,
    skip_guards,
    skip_initialisation,
)
from pharoah.dryrun.placeholder_numbers import keep_placeholders_in_math
from pharoah.dryrun.placeholder_values import ReadablePlaceholders
from pharoah.dryrun.redirect import CudaToCpu, redirect_cuda
from pharoah.dryrun.repeated_calls import RepeatedCalls
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.serving import ServingWindow
from pharoah.dryrun.step_boundary import Window, before
from pharoah.dryrun.steps_by_hand import StepsByHand
from pharoah.dryrun.torch_checks import pass_checks_of_unknown_values
from pharoah.dryrun.unknown_sizes import decide_unknown_sizes, print_unknown_sizes
from pharoah.dryrun.weight_files import give_addresses_to_fakes, save_fakes_as_zeros
from pharoah.dryrun.worker_processes import train_in_this_process
from pharoah.torch_names import FakeTensorMode, what_is_needed
from pharoah_archetypes.devices import device_named, usual_device


@contextmanager
def fake_step(report: Callable[[DryRun, bool], None], values: UnknownValues) -> Iterator[None]:
    """Inside, tensors are fake and recorded; the end of the second step raises Finished.

    `report` gets the result of the first step, with false since that step includes what the script did before, and the
    result of the second step, with true. `values` says what happens when the script needs a value that fake tensors do
    not have. Raises UnknownReason where torch lacks what a dry run stands on.
    """
    if missing := what_is_needed():
        raise UnknownReason(f"this torch has no {missing}, and there is no dry run without it")
    recorder = DryRecorder(values.assume)
    window = Window(recorder, report, values.report)
    recorder.by_hand = by_hand = StepsByHand(window)
    register_optimizer_step_pre_hook(window.begin)
    register_optimizer_step_post_hook(window.end)
    serving = ServingWindow(recorder, window.cost, report)
    for event in (window.note_optimizer, serving.train):
        before(torch.optim.Optimizer, "__init__", event)
    for event in (window.differentiate, serving.train):
        before(torch.autograd, "backward", event)
    on_stated_step(serving.end_stated)
    load_data_in_this_process(recorder)
    follow_resizes(recorder)
    make_sparse_tensors(values.assume)
    RepeatedCalls(recorder).install()
    serving.install()
    torch.distributions.Distribution.set_default_validate_args(False)  # a check of values
    print_unknown_sizes()
    decide_unknown_sizes(values)
    pass_checks_of_unknown_values()
    keep_placeholders_in_math()
    rebind_parameters()
    separate_kinds_of_parameters()
    skip_initialisation()
    skip_guards(FakeTensorMode, capture.Recorder, DryRecorder)
    warnings.simplefilter("ignore")
    fakes = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    save_without_values(fakes)
    give_addresses_to_fakes()
    save_fakes_as_zeros()
    train_in_this_process()
    if gpus := list_simulated_gpus():
        compute_as_gpus_do(gpus[0], recorder.ledger)
        if device_named(gpus[0]) is None:
            values.assumed.append(f"no data sheet of {gpus[0]} is known: it answers like an {usual_device().part}")
    with fakes:
        install_fake_process_group()
        redirect_cuda(recorder.ledger)  # before any tensor is made: fake tensors ask for a GPU
        reads = ReadablePlaceholders(values, recorder.written, by_hand)
        gpus_to_cpu = CudaToCpu(recorder.ledger)
        run_backward_in(gpus_to_cpu, reads)
        with gpus_to_cpu, reads, recorder:
            try:
                yield
            except SystemExit as exit_:
                if not exit_.code:
                    serving.finish()
                raise
            by_hand.finish()
            serving.finish()
