"""A captured step of a running job, beside the dispatch modes of the user's own program."""

from __future__ import annotations

from tests.harness.torch_server import TorchServer


def test_a_user_mode_around_the_captured_step_keeps_its_place(torch_server: TorchServer) -> None:
    code = """
import json, torch
from torch.utils.flop_counter import FlopCounterMode
from pharoah.capture import hooks
from pharoah.capture.clock import StepClock
class Sink:
    def send(self, message): pass
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
hooks.attach(StepClock(Sink()))
for _ in range(3):
    step()
mode = FlopCounterMode(display=False)
mode.__enter__()  # above ours, and still there when our step is over
above = torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1)
for _ in range(3):
    step()
assert torch._C._get_dispatch_stack_at(torch._C._len_torch_dispatch_stack() - 1) is above
mode.__exit__(None, None, None)
for _ in range(3):
    step()
assert torch._C._len_torch_dispatch_stack() == 0
print(mode.get_total_flops())
"""
    flops = int(torch_server.run_code(code))
    assert flops == 3 * 2 * (2 * 4 * 8 * 8)  # forward and the weights' gradient, three times


def test_a_torch_without_distributed_tensors_is_captured_as_well(torch_server: TorchServer) -> None:
    """Releases before 2.5 have the module `torch.distributed.tensor` without the class."""
    code = """
import sys, types
import torch
from pharoah.capture.recorder import is_distributed
sys.modules["torch.distributed.tensor"] = types.ModuleType("torch.distributed.tensor")
print(is_distributed((torch.nn.Parameter,)))
"""
    assert torch_server.run_code(code) == b"False\n"
