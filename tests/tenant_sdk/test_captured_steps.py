"""The step clock beside real optimizers: what it times, what counts as one step, and how a capture ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.torch_server import TorchServer

WATCHED = """
import gc, json, threading, weakref
import torch
from torch import nn
from pharoah.capture import hooks, recorder, single_step
from pharoah.capture.clock import StepClock
from pharoah_protocol.rank_messages import Capture, Steps
class Sink:
    now = 0
    def __init__(self):
        self.grammars, self.durations = [], []
    def send(self, message):
        if isinstance(message, Capture):
            self.now += 1000  # time that making the fingerprint has taken
            self.grammars.append(json.loads(message.fingerprint)["grammar"])
        if isinstance(message, Steps):
            self.durations += message.durations
sink = Sink()
clock = StepClock(sink, now=lambda: sink.now)
hooks.attach(clock)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
def backward():
    model(torch.randn(4, 8)).sum().backward()
def modes():
    return torch._C._len_torch_dispatch_stack()
"""
IN_BACKWARD = """
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
hooked = [p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step()) for p in model.parameters()]
"""


ORDINARY = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    backward()
    optimizer.step()
print(json.dumps(sink.grammars))
"""


def printed(server: TorchServer, source: str) -> Any:
    """The JSON that a watched training prints."""
    return json.loads(server.run_code(WATCHED + source))


@pytest.mark.parametrize(
    ("stated", "timed"),
    [(False, [20, 30, 50, 60]), (True, [10, 20, 50, 60])],
    ids=["steps of the optimizer", "stated steps, in which the capture begins and ends"],
)
def test_what_the_capture_slows_is_not_timed(torch_server: TorchServer, stated: bool, timed: list[int]) -> None:
    source = f"""
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if {stated}:
    sink.now = 5
    clock.tick("session")
for duration in (10, 20, 30, 40, 50, 60):
    sink.now += duration
    backward()
    optimizer.step()
    if {stated}:
        clock.tick("session")
clock.flush()
print(json.dumps([sink.durations, sink.grammars]))
"""
    durations, [grammar] = printed(torch_server, source)
    assert durations == timed
    assert grammar.startswith("fwd: gemm act gemm")


STEPS_THAT_CALL_STEPS = {
    "of the class that it derives from": """
torch.optim.Adam([nn.Parameter(torch.ones(1))])  # from now on the steps of this class call hooks
class Derived(torch.optim.Adam):
    def step(self, closure=None):
        return super().step(closure)
optimizer = Derived(model.parameters())
""",
    "of another optimizer": """
class Around(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups[0]["params"], {})
        self.inner = inner
    def step(self, closure=None):
        loss = None if closure is None else closure()
        self.inner.step()
        return loss
optimizer = Around(torch.optim.Adam(model.parameters()))
""",
}


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("optimizer", STEPS_THAT_CALL_STEPS.values(), ids=STEPS_THAT_CALL_STEPS)
def test_a_step_that_calls_a_step_is_one(torch_server: TorchServer, optimizer: str, closure: bool) -> None:
    source = f"""
{optimizer}
for _ in range(6):
    if {closure}:
        optimizer.step(lambda: backward())
    else:
        backward()
        optimizer.step()
print(json.dumps([clock.steps, sink.grammars, modes()]))
"""
    steps, [grammar], modes = printed(torch_server, source)
    assert (steps, modes) == (6, 0)
    assert grammar.startswith("fwd: gemm act gemm")


def test_a_step_that_fails_inside_another_one_does_not_stay_open(torch_server: TorchServer) -> None:
    source = """
class Failing(torch.optim.SGD):
    def step(self, closure=None):
        super().step()
        raise ValueError("not this time")
class Patient(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups[0]["params"], {})
        self.inner = inner
    def step(self, closure=None):
        try:
            self.inner.step()
        except ValueError:
            pass
failing = Failing(model.parameters(), lr=0.1)
patient = Patient(failing)
for _ in range(4):
    patient.step()
steps = clock.steps
for _ in range(4):
    try:
        failing.step()
    except ValueError:
        pass
    patient.step()
print(json.dumps([steps, clock.steps]))
"""
    assert printed(torch_server, source) == [4, 8]


def test_steps_for_one_group_of_parameters_after_the_other_are_one(torch_server: TorchServer) -> None:
    """DeepSpeed's ZeRO updates each group by a step of its own, with the other groups taken out."""
    source = """
optimizer = torch.optim.SGD([{"params": [p]} for p in model.parameters()], lr=0.1)
groups = optimizer.param_groups
for _ in range(6):
    backward()
    for group in groups:
        optimizer.param_groups = [group]
        optimizer.step()
        optimizer.param_groups = groups
print(json.dumps([clock.steps, sink.grammars, modes()]))
"""
    steps, [grammar], modes = printed(torch_server, source)
    assert (steps, modes) == (6, 0)
    assert grammar.startswith("fwd: gemm act gemm")


def test_steps_in_the_backward_pass_leave_no_mode_and_no_optimizer_behind(torch_server: TorchServer) -> None:
    source = f"""
{IN_BACKWARD}
for _ in range(8):
    backward()
kept = [weakref.ref(optimizer) for optimizer in optimizers.values()]
for handle in hooked:
    handle.remove()
optimizers.clear()
gc.collect()
print(json.dumps([clock.steps, modes(), clock._capture.active, [one() is None for one in kept]]))
"""
    assert printed(torch_server, source) == [8, 0, False, [True] * 4]


@pytest.mark.parametrize("fails", [False, True])
def test_steps_in_the_backward_pass_are_captured_where_the_script_states_steps(
    torch_server: TorchServer, fails: bool
) -> None:
    source = f"""
{IN_BACKWARD}
def fail(*_):
    raise ValueError("not this time")
for number in range(8):
    failing = None
    if {fails} and number == 3:  # in the captured step, when ours is taken off
        failing = optimizers[model[0].weight].register_step_pre_hook(fail)
    try:
        backward()
    except ValueError:
        failing.remove()
    clock.tick("session")
print(json.dumps([modes(), clock._capture.active, sink.grammars]))
"""
    modes, active, grammars = printed(torch_server, source)
    assert (modes, active) == (0, False)
    assert fails or grammars == printed(torch_server, ORDINARY)


def test_a_recorder_that_the_stack_has_lost_is_dropped(torch_server: TorchServer) -> None:
    source = """
capture = single_step.OneStep()
model[0].weight.register_hook(lambda _: capture.enter())  # autograd takes it off after the node
backward()
active = capture.active
capture.note_step(torch.optim.SGD(model.parameters(), lr=0.1))
print(json.dumps([active, modes(), capture.active]))
"""
    assert printed(torch_server, source) == [True, 0, False]


def test_an_evaluation_after_the_third_step_is_recorded_for_a_while_only(torch_server: TorchServer) -> None:
    source = """
single_step.MAX_ASIDE = 50
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    sink.now += 10
    backward()
    optimizer.step()
for _ in range(3):
    train()
before = clock._capture.recording
with torch.no_grad():
    for _ in range(50):
        model(torch.randn(4, 8))
after = [clock._capture.active, modes(), len(nn.modules.module._global_forward_pre_hooks)]
train()
clock.flush()
print(json.dumps([before, after, modes(), clock.steps, sink.durations, sink.grammars]))
"""
    assert printed(torch_server, source) == [True, [False, 0, 0], 0, 4, [10, 10], []], "the fourth step was slowed"


def test_another_thread_that_ends_the_watching_leaves_the_stack_of_the_job_alone(torch_server: TorchServer) -> None:
    source = """
from torch.utils.flop_counter import FlopCounterMode
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    backward()
    optimizer.step()
mine = torch._C._get_dispatch_stack_at(0)
def finish():
    with FlopCounterMode(display=False):
        hooks.detach()
        assert modes() == 1
thread = threading.Thread(target=finish)
thread.start()
thread.join()
backward()
print(json.dumps([mine.broken, len(mine.records), modes(), len(nn.modules.module._global_forward_pre_hooks)]))
"""
    assert printed(torch_server, source) == ["dropped", 0, 0, 0]
