"""Which kernels and dtypes a dry run for a GPU takes: those that torch was seen to take on an H200, and those that the
documentation of autocast states."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pharoah._errors import UnknownReason
from pharoah.dryrun import attention_kernels
from pharoah.dryrun.attention_kernels import AttentionCall, Capability, choose_kernel
from tests.tenant_sdk.conftest import DryRunner

H200, A100, T4 = Capability(9, 0), Capability(8, 0), Capability(7, 5)
GPUS = "1x NVIDIA H100 80GB HBM3"
CUDNN, FLASH, EFFICIENT, MATH = (
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
)
HALF, FULL = torch.bfloat16, torch.float32


def call(
    dtype: torch.dtype = HALF, width: int = 64, queries: int = 32, keys: int = 32, key_heads: int = 4, **others: Any
) -> AttentionCall:
    query = torch.empty(2, 4, queries, width, dtype=dtype, device="meta")
    key, value = (torch.empty(2, key_heads, keys, width, dtype=dtype, device="meta") for _ in range(2))
    return AttentionCall(query, key, value, **others)


def mask(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=HALF, device="meta")


@pytest.fixture(autouse=True)
def _release_of_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernels, "_RELEASE", (2, 11))


@pytest.mark.parametrize(
    ("asked", "kernel"),
    [
        (call(), CUDNN),
        (call(dropout=0.1), CUDNN),
        (call(width=256), CUDNN),
        (call(width=264), EFFICIENT),
        (call(width=66), FLASH),
        (call(width=66, mask=mask(32, 32)), MATH),
        (call(mask=mask(2, 1, 1, 32)), CUDNN),
        (call(mask=torch.zeros(32, 32, dtype=HALF, device="meta", requires_grad=True)), EFFICIENT),
        (call(mask=mask(1, 32, 32, 4).permute(0, 3, 1, 2)), MATH),
        (call(keys=1), FLASH),
        (call(queries=1, keys=33, dropout=0.1), FLASH),
        (call(key_heads=2, grouped=True), CUDNN),
        (call(key_heads=2), MATH),
        (call(FULL), EFFICIENT),
        (call(FULL, width=66), MATH),
        (call(FULL, key_heads=2, grouped=True), MATH),
        (call(FULL, grouped=True), EFFICIENT),
        (call(torch.float64), MATH),
    ],
)
def test_the_kernel_is_what_torch_took_on_an_h200(asked: AttentionCall, kernel: SDPBackend) -> None:
    assert choose_kernel(asked, H200) == kernel


def test_other_generations_have_other_kernels() -> None:
    assert choose_kernel(call(), A100) == FLASH
    assert choose_kernel(call(), T4) == MATH  # bfloat16 needs generation 8
    assert choose_kernel(call(torch.float16), T4) == EFFICIENT


def test_releases_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_kernels, "_RELEASE", (2, 12))
    assert choose_kernel(call(dropout=0.1), H200) == FLASH
    assert choose_kernel(call(dropout=0.125), H200) == CUDNN
    monkeypatch.setattr(attention_kernels, "_RELEASE", (2, 7))
    assert choose_kernel(call(), H200) == FLASH


def test_the_script_chooses_among_kernels() -> None:
    with sdpa_kernel([EFFICIENT, MATH]):
        assert choose_kernel(call(), H200) == EFFICIENT
    with sdpa_kernel([MATH, FLASH], set_priority=True):
        assert choose_kernel(call(), H200) == MATH
    with sdpa_kernel(FLASH), pytest.raises(RuntimeError, match="No available kernel"):
        choose_kernel(call(FULL), H200)


ATTENTION = """
import torch
from torch.nn import functional as F
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(64, 192)
    def forward(self, x):
        q, k, v = self.project(x).reshape(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p={dropout})
model = Model().to("{device}", {dtype})
x = torch.randn(2, 16, 64, device="{device}", dtype={dtype})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    {around}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PLAIN = "loss = model(x).float().pow(2).mean()"


@pytest.mark.parametrize(
    ("device", "dtype", "dropout", "kernel"),
    [
        ("cuda", "torch.float32", 0.1, "efficient"),
        ("cuda", "torch.bfloat16", 0.0, "cudnn"),
        ("cpu", "torch.bfloat16", 0.0, "flash"),
    ],
)
def test_a_dry_run_for_a_gpu_has_the_attention_of_the_gpu(
    dry_run_script: DryRunner, device: str, dtype: str, dropout: float, kernel: str
) -> None:
    script = ATTENTION.format(device=device, dtype=dtype, dropout=dropout, around=PLAIN)
    assert dry_run_script(script, gpus=GPUS).fingerprint.features["attention"] == kernel


def test_a_job_that_no_kernel_can_compute_is_not_called_well(dry_run_script: DryRunner) -> None:
    around = f"with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION): {PLAIN}"
    script = ATTENTION.format(device="cuda", dtype="torch.float32", dropout=0.0, around=around)
    with pytest.raises(UnknownReason, match="No available kernel"):
        dry_run_script("import torch.nn.attention\n" + script, gpus=GPUS)


def test_a_mask_that_torch_refuses_is_refused(dry_run_script: DryRunner) -> None:
    script = ATTENTION.format(device="cuda", dtype="torch.float32", dropout=0.0, around=PLAIN)
    script = script.replace("is_causal=True", "attn_mask=torch.ones(16, 16, dtype=torch.int64, device='cuda')")
    with pytest.raises(UnknownReason, match="attn_mask dtype"):
        dry_run_script(script, gpus=GPUS)


MIXED = """
import torch
from torch.nn import functional as F
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(4, 8, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
half, full = torch.bfloat16, torch.float32
for _ in range(3):
    with torch.autocast("cuda", half):
        y = model(x)
        found = dict(linear=y, softmax=torch.softmax(y, -1), log_softmax=F.log_softmax(y, 1), power=y.pow(2),
                     norm=F.layer_norm(y, (8,)), exponential=y.exp(), sum=y.sum(), cat=torch.cat([y, y]),
                     widest=torch.addcmul(x, y, y), double=torch.softmax(y.double(), -1),
                     asked=torch.softmax(y, -1, dtype=half))
        loss = sum(one.float().mean() for one in found.values())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
expected = dict(linear=half, softmax=full, log_softmax=full, norm=full, exponential=full, sum=full, cat=half,
                widest=full, power=full, double=torch.float64, asked=half)
"""
CHECK = "        assert {name: one.dtype for name, one in found.items()} == expected, found\n"


def test_autocast_has_the_dtypes_that_are_documented_for_gpus(dry_run_script: DryRunner) -> None:
    lines = MIXED.splitlines(keepends=True)
    expected = "".join(lines[-2:])
    body = "".join(lines[:-2]).replace("    loss.backward()", f"{CHECK}    loss.backward()")
    dry_run_script(body.replace("for _ in", expected + "for _ in", 1), gpus=GPUS)


def test_a_loss_that_autocast_refuses_on_gpus_is_refused(dry_run_script: DryRunner) -> None:
    script = MIXED.replace("loss = sum(", "loss = F.binary_cross_entropy(torch.sigmoid(y), torch.zeros_like(y)) + sum(")
    with pytest.raises(UnknownReason, match="binary_cross_entropy"):
        dry_run_script(script, gpus=GPUS)


DROPOUT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(32, 32){layer}).{device}()
x = torch.randn(16, 32).{device}()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(x).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("probability", "written"), [(0.1, 16 * 32 * 4), (0.0, 0)])
def test_dropout_on_a_gpu_writes_its_result_once(dry_run_script: DryRunner, probability: float, written: int) -> None:
    layers = "", f", torch.nn.Dropout({probability})"
    without, with_dropout = (activations(dry_run_script, layer, "cuda", GPUS) for layer in layers)
    assert with_dropout - without == written


def test_dropout_on_the_cpu_of_a_machine_with_gpus_is_that_of_the_cpu(dry_run_script: DryRunner) -> None:
    layer = ", torch.nn.Dropout(0.1)"
    assert activations(dry_run_script, layer, "cpu", GPUS) == activations(dry_run_script, layer, "cpu", "")


def activations(dry_run_script: DryRunner, layer: str, device: str, gpus: str) -> int:
    """The bytes that a step writes in its forward pass."""
    return dry_run_script(DROPOUT.format(layer=layer, device=device), gpus=gpus).fingerprint.sizes["activations"]
