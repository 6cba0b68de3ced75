"""Libraries of CUDA kernels that cannot be imported: a dry run substitutes their documented functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pharoah._errors import UnknownReason
from pharoah.dryrun.extensions import extensions, missing_extension
from pharoah_archetypes import Fingerprint
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

ATTENTION = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.merge = nn.Linear(32, 96), nn.Linear(32, 32)
    def forward(self, x):
        q, k, v = self.project(x).view(4, 16, 3, 4, 8).unbind(2)
        return self.merge(attend(q, k, v).reshape(4, 16, 32))
model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(4, 16, 32)).pow(2).mean().backward()
    optimizer.step()
"""
PLAIN = """
def attend(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
"""
FLASH = "from flash_attn import flash_attn_func\ndef attend(q, k, v): return flash_attn_func(q, k, v, causal=True)\n"
FLASH_PACKED = """
from flash_attn.flash_attn_interface import flash_attn_qkvpacked_func
def attend(q, k, v): return flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), 0.0, causal=True)
"""
FLASH_RAGGED = """
from flash_attn import flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input
def attend(q, k, v):
    mask = torch.ones(4, 16, dtype=torch.bool)
    (a, where, starts, longest, _), b, c = unpad_input(q, mask), unpad_input(k, mask)[0], unpad_input(v, mask)[0]
    out = flash_attn_varlen_func(a, b, c, starts, starts, longest, longest, causal=True)
    return pad_input(out, where, 4, 16)
"""
XFORMERS = """
import xformers.ops as xops
def attend(q, k, v): return xops.memory_efficient_attention(q, k, v, attn_bias=xops.LowerTriangularMask())
"""


@pytest.mark.parametrize("attend", [FLASH, FLASH_PACKED, FLASH_RAGGED, XFORMERS])
def test_attention_of_an_extension_is_attention(attend: str, dry_run_script: DryRunner) -> None:
    found, plain = dry_run_script(attend + ATTENTION), dry_run_script(PLAIN + ATTENTION)
    assert found.fingerprint.grammar == plain.fingerprint.grammar
    assert found.cost.flops == plain.cost.flops
    (sentence,) = found.assumptions
    assert sentence.endswith("cannot be imported: substitutes compute its functions")


def test_a_script_with_an_alternative_of_its_own_takes_it(dry_run_script: DryRunner) -> None:
    source = f"try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None\n{TRAIN}"
    found = dry_run_script(source + "assert flash_attn is None\n" + STEP * 4)
    assert not found.assumptions


def test_every_other_missing_module_ends_the_dry_run(dry_run_script: DryRunner) -> None:
    with pytest.raises(UnknownReason, match="No module named 'no_such_library'"):
        dry_run_script("import no_such_library\n" + TRAIN + STEP)


def test_a_name_without_a_substitute_is_named(dry_run_script: DryRunner) -> None:
    with pytest.raises(UnknownReason, match="cannot import name 'flash_attn_sparse' from 'flash_attn'"):
        dry_run_script("from flash_attn import flash_attn_sparse\n" + TRAIN + STEP)


def test_apex_is_substituted(dry: Callable[..., Fingerprint]) -> None:
    optimizer = (
        "from apex import amp\nfrom apex.optimizers import FusedAdam\noptimizer = FusedAdam(model.parameters())\n"
    )
    prepare = "model, optimizer = amp.initialize(model, optimizer, opt_level='O1')\n"
    step = """
for _ in range(4):
    with amp.scale_loss(model(torch.randn(4, 8)).mean(), optimizer) as loss: loss.backward()
    optimizer.step()
"""
    found = dry(TRAIN.partition("optimizer")[0] + optimizer + prepare + step)
    assert found.features["optimizer"] == "fusedadam/forloop"
    norm = "from apex.normalization import FusedLayerNorm\n"
    assert "norm=layer" in dry(norm + TRAIN.replace("torch.nn.ReLU()", "FusedLayerNorm(8)") + STEP * 4).grammar


def test_states_of_eight_bits_take_a_byte_each(dry_run_script: DryRunner) -> None:
    make = (
        "import bitsandbytes as bnb\noptimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-3, betas=(0.9, 0.99))\n"
    )
    memory = dry_run_script(TRAIN.partition("optimizer")[0] + make + STEP * 4).cost.memory
    sizes = [event for event in memory.events if event >= 0]
    states = sum(size for size, role in zip(sizes, memory.roles, strict=True) if role == "s")
    assert states == 2 * (8 * 8 + 8 + 8 + 1)


def test_kernels_in_triton_are_launched_on_nothing(dry: Callable[..., Fingerprint]) -> None:
    kernel = """
import triton
import triton.language as tl
@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)
"""
    launch = "x = torch.randn(64)\ny = torch.empty_like(x)\ndouble[(triton.cdiv(64, 32),)](x, y, 64)\n"
    assert dry(kernel + TRAIN + (launch + STEP) * 4).archetype == dry(TRAIN + STEP * 4).archetype


def test_libraries_that_look_for_an_extension_find_it(dry_run_script: DryRunner) -> None:
    source = """
import torch, transformers
config = transformers.LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
    attn_implementation="flash_attention_2", dtype="bfloat16",
)
model = transformers.AutoModelForCausalLM.from_config(config).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(0, 64, (2, 8), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
    found = dry_run_script(source, gpus="1x NVIDIA H100 80GB HBM3")
    assert "attn" in found.fingerprint.grammar and "causal" in found.fingerprint.grammar


def test_an_error_in_words_names_the_extension() -> None:
    assert missing_extension(ImportError("the package flash-attn seems to be not installed")) == "flash_attn"
    assert missing_extension(ModuleNotFoundError("No module named 'apex.amp'", name="apex.amp")) == "apex"
    assert not missing_extension(ModuleNotFoundError("No module named 'ours'", name="ours"))
    assert set(extensions().entries) >= {"apex", "bitsandbytes", "flash_attn", "triton", "xformers"}
