"""Models of many families, tiny: what archetypes must keep apart and what they must not.

A family belongs to a class; families of one class must have one archetype under every variation. `transformers` models
are its own, built from a configuration without weights; the rest is written here as it is written everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from pharoah_archetypes import catalogue

Loss = Callable[[], Tensor]
DEVICE = "PHAROAH_EVALUATION_DEVICE"
"""Environment: where models live, `cpu` or `cuda`."""


@dataclass(frozen=True)
class Variation:
    """What must not matter to an archetype."""

    batch: int = 2
    length: int = 32
    width: int = 32
    heads: int = 4
    depth: int = 2
    vocabulary: int = 96
    seed: int = 0
    autocast: bool = False
    checkpointing: bool = False


BASE = Variation()
VARIATIONS = {
    "batch": replace(BASE, batch=3),
    "length": replace(BASE, length=64),
    "width": replace(BASE, width=64),
    "heads": replace(BASE, heads=2),
    "depth 1": replace(BASE, depth=1),
    "depth 3": replace(BASE, depth=3),
    "depth 5": replace(BASE, depth=5),
    "vocabulary": replace(BASE, vocabulary=301),
    "seed": replace(BASE, seed=7),
    "autocast": replace(BASE, autocast=True),
    "checkpointing": replace(BASE, checkpointing=True),
    "several": Variation(1, 48, 48, 3, 4, 130, 3, True, False),
}


@dataclass(frozen=True)
class Family:
    """One model family: `build` makes the model and a function from it to a loss."""

    name: str
    build: Callable[[Variation], tuple[nn.Module, Loss]]

    @property
    def of_class(self) -> str:
        """The catalogue's entry that names this family."""
        return next(entry.id for entry in catalogue().values() if self.name in entry.variants)


def training_step(
    family: Family, variation: Variation, micro_batches: int = 1
) -> tuple[Callable[[], None], torch.optim.Optimizer, nn.Module]:
    """A function that does one real training step, its optimizer and its model."""
    device = os.environ.get(DEVICE, "cpu")
    if device != "cpu":
        torch.set_default_device(device)
    torch.manual_seed(variation.seed)
    model, loss = family.build(variation)
    model.train()
    if variation.checkpointing:
        _checkpoint(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(micro_batches):
            with torch.autocast(device, torch.bfloat16, enabled=variation.autocast):
                value = loss()
            value.backward()
        optimizer.step()

    return step, optimizer, model


def _checkpoint(model: nn.Module) -> None:
    """Activation checkpointing the model's own way, or around each of its parts."""
    if getattr(model, "supports_gradient_checkpointing", False):
        model.gradient_checkpointing_enable()
        return
    for part in model.children():
        if not isinstance(part, nn.ModuleList):
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)


# ---- language ----


def _tokens(v: Variation, length: int | None = None) -> Tensor:
    return torch.randint(4, v.vocabulary, (v.batch, length or v.length))


def _decoder(config: str, model: str, **extra: Any) -> Callable[[Variation], tuple[nn.Module, Loss]]:
    def build(v: Variation) -> tuple[nn.Module, Loss]:
        import transformers

        settings = {
            "vocab_size": v.vocabulary,
            "hidden_size": v.width,
            "intermediate_size": 2 * v.width,
            "num_hidden_layers": v.depth,
            "num_attention_heads": v.heads,
            "num_key_value_heads": v.heads,
            "max_position_embeddings": 128,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **extra,
        }
        network = getattr(transformers, model)(getattr(transformers, config)(**settings))
        ids = _tokens(v)
        return network, lambda: network(input_ids=ids, labels=ids).loss

    return build


def _gpt2(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import GPT2Config, GPT2LMHeadModel

    network = GPT2LMHeadModel(
        GPT2Config(vocab_size=v.vocabulary, n_embd=v.width, n_layer=v.depth, n_head=v.heads, n_positions=128)
    )
    ids = _tokens(v)
    return network, lambda: network(input_ids=ids, labels=ids).loss


def _encoder(config: str, model: str, **extra: Any) -> Callable[[Variation], tuple[nn.Module, Loss]]:
    def build(v: Variation) -> tuple[nn.Module, Loss]:
        import transformers

        settings = {
            "vocab_size": v.vocabulary,
            "hidden_size": v.width,
            "embedding_size": v.width,
            "intermediate_size": 2 * v.width,
            "num_hidden_layers": v.depth,
            "num_attention_heads": v.heads,
            "max_position_embeddings": 130,
            **extra,
        }
        network = getattr(transformers, model)(getattr(transformers, config)(**settings))
        ids = _tokens(v)
        labels = (ids > 50).float() if "PreTraining" in model else ids
        return network, lambda: network(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss

    return build


def _t5(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import T5Config, T5ForConditionalGeneration

    network = T5ForConditionalGeneration(
        T5Config(
            vocab_size=v.vocabulary, d_model=v.width, d_kv=v.width // v.heads, d_ff=2 * v.width, num_layers=v.depth,
            num_heads=v.heads, decoder_start_token_id=0,
        )
    )  # fmt: skip
    ids, labels = _tokens(v), _tokens(v, v.length // 2)
    return network, lambda: network(input_ids=ids, labels=labels).loss


def _mamba(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import MambaConfig, MambaForCausalLM

    network = MambaForCausalLM(
        MambaConfig(vocab_size=v.vocabulary, hidden_size=v.width, num_hidden_layers=v.depth, state_size=v.heads)
    )
    ids = _tokens(v)
    return network, lambda: network(input_ids=ids, labels=ids).loss


class _Recurrent(nn.Module):
    def __init__(self, v: Variation) -> None:
        super().__init__()
        self.embedding = nn.Embedding(v.vocabulary, v.width)
        self.cells = nn.LSTM(v.width, v.width, v.depth, batch_first=True)
        self.head = nn.Linear(v.width, v.vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.cells(self.embedding(ids))[0])


def _lstm(v: Variation) -> tuple[nn.Module, Loss]:
    network, ids = _Recurrent(v), _tokens(v)
    return network, lambda: F.cross_entropy(network(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


# ---- vision ----


def _image(v: Variation, size: int) -> Tensor:
    return torch.randn(v.batch, 3, size, size)


def _classifier(config: str, model: str, settings: Callable[[Variation], dict[str, Any]], size: int) -> Any:
    def build(v: Variation) -> tuple[nn.Module, Loss]:
        import transformers

        network = getattr(transformers, model)(getattr(transformers, config)(num_labels=v.vocabulary, **settings(v)))
        pixels, labels = _image(v, size * v.length // 32), torch.arange(v.batch)
        return network, lambda: network(pixel_values=pixels, labels=labels).loss

    return build


def _vit_settings(v: Variation) -> dict[str, Any]:
    return {
        "image_size": v.length, "patch_size": 8, "hidden_size": v.width, "intermediate_size": 2 * v.width,
        "num_hidden_layers": v.depth, "num_attention_heads": v.heads,
    }  # fmt: skip


def _swin_settings(v: Variation) -> dict[str, Any]:
    return {
        "image_size": 2 * v.length, "patch_size": 4, "embed_dim": v.width // v.heads * v.heads, "window_size": 4,
        "depths": [v.depth, v.depth], "num_heads": [v.heads, v.heads],
    }  # fmt: skip


def _resnet_settings(v: Variation) -> dict[str, Any]:
    return {"embedding_size": v.width, "hidden_sizes": [v.width, 2 * v.width], "depths": [v.depth, v.depth + 1]}


class _Block(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class _UNet(nn.Module):
    def __init__(self, v: Variation) -> None:
        super().__init__()
        widths = [v.width * (level + 1) for level in range(v.depth + 1)]
        self.down = nn.ModuleList(_Block(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.merge = nn.ModuleList(_Block(2 * a, a) for a in widths[-2::-1])
        self.head = nn.Conv2d(v.width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(torch.cat([up(x), kept.pop()], 1))
        return self.head(x)


def _unet(v: Variation) -> tuple[nn.Module, Loss]:
    network, pixels = _UNet(v), _image(v, 2 * v.length)
    noise = torch.randn_like(pixels)
    return network, lambda: F.mse_loss(network(pixels + noise), noise)


# ---- tables ----


class _Dlrm(nn.Module):
    def __init__(self, v: Variation) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(v.vocabulary, v.width, mode="sum") for _ in range(v.heads))
        self.bottom = _perceptron([13, *[v.width] * v.depth])
        self.top = _perceptron([v.width + (v.heads + 1) ** 2, *[v.width] * v.depth, 1])

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        x = self.bottom(dense)
        vectors = torch.stack([x, *(table(sparse[:, at]) for at, table in enumerate(self.tables))], 1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, pairs], 1)).squeeze(1)


def _perceptron(sizes: list[int]) -> nn.Sequential:
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*(layers if sizes[-1] != 1 else layers[:-1]))


def _dlrm(v: Variation) -> tuple[nn.Module, Loss]:
    network = _Dlrm(v)
    dense, sparse = torch.randn(v.batch, 13), torch.randint(0, v.vocabulary, (v.batch, v.heads, 4))
    clicks = torch.rand(v.batch).round()
    return network, lambda: F.binary_cross_entropy_with_logits(network(dense, sparse), clicks)


class _Mlp(nn.Module):
    def __init__(self, v: Variation) -> None:
        super().__init__()
        self.hidden = _perceptron([v.length, *[v.width] * v.depth])
        self.head = nn.Linear(v.width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


def _mlp(v: Variation) -> tuple[nn.Module, Loss]:
    network, x, y = _Mlp(v), torch.randn(v.batch, v.length), torch.arange(v.batch) % 10
    return network, lambda: F.cross_entropy(network(x), y)


# ---- speech, several modes ----


def _wav2vec2(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    network = Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=v.vocabulary, hidden_size=v.width, num_hidden_layers=v.depth, num_attention_heads=v.heads,
            intermediate_size=2 * v.width, conv_dim=(v.width, v.width), conv_stride=(5, 2), conv_kernel=(10, 3),
            num_feat_extract_layers=2, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=1,
            apply_spec_augment=False, layerdrop=0.0,  # which layers of a step are dropped is chance
        )
    )  # fmt: skip
    sound, labels = torch.randn(v.batch, 40 * v.length), _tokens(v, 5)
    return network, lambda: network(sound, labels=labels).loss


def _whisper(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    network = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=v.vocabulary, num_mel_bins=16, encoder_layers=v.depth, decoder_layers=v.depth, d_model=v.width,
            encoder_attention_heads=v.heads, decoder_attention_heads=v.heads, encoder_ffn_dim=2 * v.width,
            decoder_ffn_dim=2 * v.width, max_source_positions=v.length, max_target_positions=64, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )
    )  # fmt: skip
    sound, labels = torch.randn(v.batch, 16, 2 * v.length), _tokens(v, 12)
    return network, lambda: network(input_features=sound, labels=labels).loss


def _clip(v: Variation) -> tuple[nn.Module, Loss]:
    from transformers import CLIPConfig, CLIPModel

    shared = {
        "hidden_size": v.width, "intermediate_size": 2 * v.width, "num_hidden_layers": v.depth,
        "num_attention_heads": v.heads,
    }  # fmt: skip
    text = {
        **shared,
        "vocab_size": v.vocabulary,
        "max_position_embeddings": 128,
        "eos_token_id": 2,
        "bos_token_id": 1,
        "pad_token_id": 0,
    }
    vision = {**shared, "image_size": v.length, "patch_size": 8}
    network = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=v.width))
    ids, pixels = _tokens(v), _image(v, v.length)
    return network, lambda: network(input_ids=ids, pixel_values=pixels, return_loss=True).loss


_ROTARY = [
    ("llama", "LlamaConfig", "LlamaForCausalLM"),
    ("mistral", "MistralConfig", "MistralForCausalLM"),
    ("qwen2", "Qwen2Config", "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3Config", "Qwen3ForCausalLM"),
    ("olmo2", "Olmo2Config", "Olmo2ForCausalLM"),
    ("granite", "GraniteConfig", "GraniteForCausalLM"),
    ("gemma", "GemmaConfig", "GemmaForCausalLM"),
    ("phi3", "Phi3Config", "Phi3ForCausalLM"),
    ("cohere", "CohereConfig", "CohereForCausalLM"),
]

FAMILIES = [
    *(Family(name, _decoder(config, model)) for name, config, model in _ROTARY),
    Family("gpt2", _gpt2),
    Family("bert", _encoder("BertConfig", "BertForMaskedLM")),
    Family("electra", _encoder("ElectraConfig", "ElectraForPreTraining")),
    Family("t5", _t5),
    Family(
        "mixtral",
        _decoder("MixtralConfig", "MixtralForCausalLM", num_local_experts=4, num_experts_per_tok=2),
    ),
    Family("mamba", _mamba),
    Family("lstm", _lstm),
    Family("vit", _classifier("ViTConfig", "ViTForImageClassification", _vit_settings, 32)),
    Family("swin", _classifier("SwinConfig", "SwinForImageClassification", _swin_settings, 64)),
    Family("resnet", _classifier("ResNetConfig", "ResNetForImageClassification", _resnet_settings, 64)),
    Family("unet", _unet),
    Family("dlrm", _dlrm),
    Family("mlp", _mlp),
    Family("wav2vec2", _wav2vec2),
    Family("whisper", _whisper),
    Family("clip", _clip),
]
