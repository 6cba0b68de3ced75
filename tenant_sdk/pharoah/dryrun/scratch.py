"""Memory that kernels take for themselves while they run and that no tensor shows, where it grows with the job."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten
_MERGED_BELOW = 128
"""Samples in a batch, up to which oneDNN multiplies all positions at once in a forward pass."""
_FLOAT32 = 4


def scratch_of(func: Any, args: Any) -> int:
    """Bytes of one call on a CPU; 0 where it is little."""
    packet = getattr(func, "_overloadpacket", func)
    if packet is aten.mkldnn_rnn_layer:
        return _gates(*args[:2], merged=args[0].shape[1] < _MERGED_BELOW)
    return _gates(*args[:2], merged=True) if packet is aten.mkldnn_rnn_layer_backward else 0


def _gates(sequence: torch.Tensor, weights: torch.Tensor, *, merged: bool) -> int:
    """oneDNN's recurrent layers keep all gates in float32, of every position where they are computed together.

    (`merge_gemm_layer` in its rnn_utils.hpp; a backward pass always does.)
    """
    positions, samples = sequence.shape[:2]
    return int(positions if merged else 1) * int(samples) * int(weights.shape[0]) * _FLOAT32
