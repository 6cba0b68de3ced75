"""Values and sizes that a dry run does not have: what scripts read, select, save, and update without an optimizer."""

from __future__ import annotations

import pytest

from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.placeholder_numbers import PlaceholderInteger, PlaceholderNumber
from tests.tenant_sdk.conftest import DryRunner

SETUP = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
data, target = torch.randn(12, 8), torch.randint(0, 4, (12,))
"""
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
STEPS = """
for _ in range(4):
    model.zero_grad()
    loss = nn.functional.cross_entropy(model(data), target)
    loss.backward()
    {update}
"""
PLAIN = SETUP + OPTIMIZER + STEPS.format(update="optimizer.step()")


class Decided(UnknownValues):
    """Every branch goes the plausible way, and is remembered."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.branches: list[bool] = []

    def decide(self, plausible: bool, what: str) -> bool:
        self.branches.append(plausible)
        return plausible


def test_arithmetic_keeps_whole_numbers_unknown() -> None:
    values = Decided()
    number = PlaceholderInteger(values)
    for result in (number + 1, 2 * number, number // 2, -number, number % 3, number**2):
        assert type(result) is PlaceholderInteger
    assert type(number / 2) is PlaceholderNumber and type(number + 0.5) is PlaceholderNumber
    assert list(range(number)) == [0] and [7, 8][number] == 8 and f"{number:03d}" == "001"
    assert values.branches == []
    assert (number > 0, number == 5, bool(number), number >= 3) == (True, False, True, False)
    assert len(values.branches) == 4
    assert number // PlaceholderInteger(values, 0) == 1  # a plausible result instead of an error


@pytest.mark.parametrize(
    "update",
    [
        "for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)",
        "for p in model.parameters(): p.data -= 0.1 * p.grad",
        "with torch.no_grad(): torch._foreach_add_(list(model.parameters()), [p.grad for p in model.parameters()])",
        "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    for p in model.parameters(): p.data.sub_(p.grad)",
    ],
)
def test_an_update_by_hand_is_a_step(dry_run_script: DryRunner, update: str) -> None:
    by_hand, plain = dry_run_script(SETUP + STEPS.format(update=update)), dry_run_script(PLAIN)
    assert by_hand.fingerprint.archetype == plain.fingerprint.archetype
    assert by_hand.fingerprint.sizes == plain.fingerprint.sizes
    assert by_hand.fingerprint.features == {**plain.fingerprint.features, "optimizer": "byhand/forloop"}


def test_with_an_optimizer_only_that_one_steps(dry_run_script: DryRunner) -> None:
    update = "for p in model.parameters(): p.data.add_(p.grad, alpha=0.01)\n    optimizer.step()"
    noisy = dry_run_script(SETUP + OPTIMIZER + STEPS.format(update=update))
    assert noisy.fingerprint.archetype == dry_run_script(PLAIN).fingerprint.archetype
    assert noisy.fingerprint.features["optimizer"] == "sgd/forloop"


@pytest.mark.parametrize(
    ("use", "note"),
    [
        ("hard = model(data)[model(data) > 0].sum()", "24 of 48 elements were taken as selected"),
        ("rows = (model(data).argmax(1) == target).nonzero(); data[rows.squeeze(1)].mean()", "6 of 12 elements"),
        ("print(len(torch.unique(model(data).argmax(1))))", "6 of 12 elements were taken as selected"),
        ("torch.zeros(int(model(data).argmax()))", "a computed value became the whole number 1"),
        ("data[: model(data).argmax(1).max().item()].mean()", ""),
        ("[part.mean() for part in data.split(torch.bincount(model(data).argmax(1), minlength=4).tolist())]", ""),
        ("torch.distributions.Categorical(logits=model(data)).sample().tolist()", ""),
        ("torch._check((model(data) > 0).any().item(), lambda: 'nothing is positive')", ""),
        ("nn.functional.gaussian_nll_loss(model(data), model(data), model(data).exp())", ""),
    ],
)
def test_sizes_that_depend_on_values_are_representative(dry_run_script: DryRunner, use: str, note: str) -> None:
    dry = dry_run_script(SETUP + OPTIMIZER + f"with torch.no_grad():\n    {use}\n" + PLAIN.removeprefix(SETUP))
    assert dry.fingerprint.archetype == dry_run_script(PLAIN).fingerprint.archetype
    assert not note or any(note in sentence for sentence in dry.assumptions)


def test_packed_sequences_keep_their_lengths(dry_run_script: DryRunner) -> None:
    lengths = "lengths = torch.tensor([5, 3, 3, 1])\nsequences = torch.randn(4, 5, 8)\n"
    packed = "pack_padded_sequence(sequences, lengths, batch_first=True)"
    uses = f"lstm = nn.LSTM(8, 6, batch_first=True)\nout, _ = lstm({packed})\n"
    check = "padded, again = pad_packed_sequence(out, batch_first=True)\n"
    check += "assert out.data.shape == (12, 6) and padded.shape == (4, 5, 6) and again.tolist() == [5, 3, 3, 1]\n"
    assert dry_run_script(SETUP + lengths + uses + check + PLAIN.removeprefix(SETUP)).fingerprint


def test_weights_are_saved_and_read_again(dry_run_script: DryRunner) -> None:
    pytest.importorskip("safetensors")
    save = """
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import id_tensor_storage
assert len({id_tensor_storage(value) for value in model.state_dict().values()}) == 4
save_file(model.state_dict(), "weights.safetensors", metadata={"format": "pt"})
loaded = load_file("weights.safetensors")
assert {name: value.shape for name, value in loaded.items()} == {n: v.shape for n, v in model.state_dict().items()}
model.load_state_dict(loaded)
"""
    dry = dry_run_script(SETUP + save + PLAIN.removeprefix(SETUP))
    assert dry.fingerprint.archetype == dry_run_script(PLAIN).fingerprint.archetype


def test_real_data_of_a_parameter_becomes_fake(dry_run_script: DryRunner) -> None:
    """As recommenders set their first weights, from numbers that NumPy has drawn."""
    drawn = """
import numpy as np
for layer in (model[0], model[2]):
    layer.weight.data = torch.tensor(np.random.normal(size=tuple(layer.weight.shape)).astype(np.float32))
"""
    dry = dry_run_script(SETUP + drawn + PLAIN.removeprefix(SETUP))
    assert dry.fingerprint == dry_run_script(PLAIN).fingerprint


def test_the_parts_of_a_weight_have_no_origin(dry_run_script: DryRunner) -> None:
    """Attention to an encoder splits one weight; what the parts are computed with decides where values come from."""
    script = """
import torch
from torch import nn
model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
source, target, head = nn.Embedding(20, 16), nn.Embedding(30, 16), nn.Linear(16, 30)
parameters = [p for part in (model, source, target, head) for p in part.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
for _ in range(4):
    words, answers = torch.randint(0, 20, (2, 5)), torch.randint(0, 30, (2, 6))
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    scores = head(model(source(words), target(answers), tgt_mask=mask))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), answers.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    grammar = dry_run_script(script).fingerprint.grammar
    assert grammar.startswith("fwd: emb (gemm attn gemm act)+ (gemm attn gemm xattn gemm act)+ gemm nll")
