"""Apex: fused optimizers and norms, and mixed precision before torch had its own.

https://nvidia.github.io/apex
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pharoah.dryrun.extensions._extension import Extension


def _modules() -> Mapping[str, Mapping[str, Any]]:
    from torch import Tensor, nn, optim

    class FusedAdam(optim.AdamW):
        def __init__(
            self, params: Any, lr: float = 1e-3, bias_correction: bool = True,
            betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, adam_w_mode: bool = True,
            weight_decay: float = 0.0, **_: Any,
        ) -> None:  # fmt: skip
            super().__init__(params, lr, betas, eps, weight_decay)

    class FusedLAMB(FusedAdam):
        pass

    class FusedNovoGrad(FusedAdam):
        pass

    class FusedSGD(optim.SGD):
        def __init__(
            self, params: Any, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0,
            weight_decay: float = 0.0, nesterov: bool = False, **_: Any,
        ) -> None:  # fmt: skip
            super().__init__(params, lr, momentum, dampening, weight_decay, nesterov)

    class FusedAdagrad(optim.Adagrad):
        def __init__(
            self, params: Any, lr: float = 1e-2, eps: float = 1e-10, weight_decay: float = 0.0, **_: Any
        ) -> None:
            super().__init__(params, lr, weight_decay=weight_decay, eps=eps)

    def initialize(models: Any, optimizers: Any = None, *_: Any, **__: Any) -> Any:
        return models if optimizers is None else (models, optimizers)

    @contextmanager
    def scale_loss(loss: Tensor, *_: Any, **__: Any) -> Iterator[Tensor]:
        yield loss

    def master_params(optimizer: optim.Optimizer) -> Iterator[Tensor]:
        return (parameter for group in optimizer.param_groups for parameter in group["params"])

    norms = {
        "FusedLayerNorm": nn.LayerNorm,
        "FusedRMSNorm": nn.RMSNorm,
        "MixedFusedLayerNorm": nn.LayerNorm,
        "MixedFusedRMSNorm": nn.RMSNorm,
    }
    parallel = {
        "DistributedDataParallel": lambda module, *_, **__: nn.parallel.DistributedDataParallel(module),
        "SyncBatchNorm": nn.SyncBatchNorm,
        "convert_syncbn_model": nn.SyncBatchNorm.convert_sync_batchnorm,
    }
    precision = {"initialize": initialize, "scale_loss": scale_loss, "master_params": master_params}
    optimizers = {kind.__name__: kind for kind in (FusedAdam, FusedLAMB, FusedNovoGrad, FusedSGD, FusedAdagrad)}
    return {
        "apex": {},
        "apex.amp": precision,
        "apex.optimizers": optimizers,
        "apex.normalization": norms,
        "apex.normalization.fused_layer_norm": norms,
        "apex.parallel": parallel,
    }


EXTENSION = Extension(
    name="apex",
    help="fused optimizers and norms, and mixed precision",
    distribution="apex",
    version="0.1",
    modules=_modules,
)
