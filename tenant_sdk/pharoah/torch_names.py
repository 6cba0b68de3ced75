"""Names of torch that a release may lack: private ones, operators, and public ones newer than the oldest release.

They stand here and nowhere else (`tests/architecture/test_torch_names.py`). A name is looked up when it is first asked
for, `from pharoah.torch_names import FakeTensor`. Where the release of torch lacks it, something else stands for it,
and a dry run states what is lost. Reading the table needs no torch. It lies in the job's process: nothing raises.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

_Value = TypeVar("_Value")
_Making = Callable[[], Any]


class TorchName(NamedTuple):
    """A name of torch under which this package asks for it."""

    paths: tuple[str, ...]
    """Where releases have it, the newest place first."""
    lost: str = ""
    """What a dry run or a capture cannot do without it; empty where nothing is lost."""
    instead: _Making = lambda: None
    """Makes what stands for it."""
    since: str = ""
    """The first minor release that has it; empty for the oldest one that Pharoah supports."""
    until: str = ""
    """The last minor release that has it; empty for the newest one."""
    needed: bool = False
    """Whether there is no dry run without it."""


def _refuse_to_shard(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("this release of torch has no FSDP 2 (torch.distributed.fsdp.fully_shard)")


def _nothing(*_: Any, **__: Any) -> None:
    return None


NO_BACKWARD = -1
"""What torch states as the backward pass outside of one."""
BACKWARD_CALLER = "_engine_run_backward"
"""The function of torch that begins a backward pass."""
COMPILER_FRAMES = "torch._compile"
"""Begins the names of modules whose functions lie between an operator and what called it."""
COMPILED_MODEL = "_orig_mod"
"""The attribute by which a compiled model has the model itself."""


def _backward_of_this_thread() -> int:
    """Whether a backward pass lies in the calls of this thread, which is so on CPUs."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == BACKWARD_CALLER:
            return 0
        frame = frame.f_back  # type: ignore[assignment]
    return NO_BACKWARD


def _has_tiles() -> bool:
    """Whether the kernel states AMX for the first processor."""
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as lines:
        return any(line.startswith("flags") and "amx_tile" in line.split() for line in lines)
    return False


def _no_class() -> type:
    """A class of which nothing is an instance."""
    return type("Absent", (), {})


_FAKES = "torch._subclasses.fake_tensor"
_GPU_KERNELS = "attention and autocast as GPUs compute them"
_FSDP2 = ("torch.distributed.fsdp._fully_shard", "torch.distributed._composable.fsdp")

NAMES: Mapping[str, TorchName] = {
    # What a dry run stands on.
    "FakeTensor": TorchName((f"{_FAKES}.FakeTensor",), "tensors without values", _no_class, needed=True),
    "FakeTensorMode": TorchName((f"{_FAKES}.FakeTensorMode",), "tensors without values", _no_class, needed=True),
    "unset_fake_temporarily": TorchName(
        (f"{_FAKES}.unset_fake_temporarily",), "values beside fake tensors", lambda: contextlib.nullcontext, needed=True
    ),
    "TorchDispatchMode": TorchName(
        ("torch.utils._python_dispatch.TorchDispatchMode",), "the operators of a step", _no_class, needed=True
    ),
    "in_kernel_invocation_manager": TorchName(
        (f"{_FAKES}.in_kernel_invocation_manager",), "the quick way to the shape of a result"
    ),
    # Modes.
    "dispatch_modes": TorchName(
        ("torch._C._len_torch_dispatch_stack",), "capture: whether a mode of the script is open", lambda: lambda: 1
    ),
    "dispatch_mode_at": TorchName(
        ("torch._C._get_dispatch_stack_at",), "capture: which mode lies on top", lambda: _nothing
    ),
    "pop_mode": TorchName(("torch.utils._python_dispatch._pop_mode",), "the end of a capture that autograd undid"),
    "disable_current_modes": TorchName(
        ("torch.utils._python_dispatch._disable_current_modes",), "masks that are causal by their values"
    ),
    "function_modes": TorchName(
        ("torch.overrides._get_current_function_mode_stack",), "calls of hooks are handled twice", lambda: tuple
    ),
    "DisableTorchFunction": TorchName(
        ("torch._C.DisableTorchFunction",),
        "the cost of operators on parts of other libraries",
        lambda: contextlib.nullcontext,
    ),
    # The dispatcher.
    "OpOverload": TorchName(("torch._ops.OpOverload",), "operators composed of others in inference mode", _no_class),
    "has_kernel": TorchName(
        ("torch._C._dispatch_has_kernel_for_dispatch_key",),
        "operators composed of others in inference mode",
        lambda: lambda *_: False,
    ),
    "operator_names": TorchName(("torch._C._dispatch_get_all_op_names",), _GPU_KERNELS, lambda: tuple),
    "DispatchKey": TorchName(("torch._C.DispatchKey",), _GPU_KERNELS),
    "DispatchKeySet": TorchName(("torch._C.DispatchKeySet",), _GPU_KERNELS),
    "ExcludeDispatchKeyGuard": TorchName(("torch._C._ExcludeDispatchKeyGuard",), _GPU_KERNELS),
    "sdp_priority_order": TorchName(("torch._C._get_sdp_priority_order",), since="2.6"),
    "is_amx_tile_supported": TorchName(("torch.cpu._is_amx_tile_supported",), instead=lambda: _has_tiles, since="2.6"),
    # Autograd.
    "current_graph_task": TorchName(
        ("torch._C._current_graph_task_id",),
        "the backward pass where it runs in threads of torch",
        lambda: _backward_of_this_thread,
    ),
    "is_forward_grad_enabled": TorchName(
        ("torch._C._is_fwd_grad_enabled",), "operators inside autograd functions of a script", lambda: lambda: True
    ),
    "run_backward": TorchName(
        (f"torch.autograd.graph.{BACKWARD_CALLER}", f"torch.autograd.{BACKWARD_CALLER}"),
        "GPUs and values that hooks of gradients name",
    ),
    "execution_engine": TorchName(
        ("torch.autograd.Variable._execution_engine",), "gradients that a step under DDP does not use"
    ),
    "tensor_base": TorchName(("torch._C.TensorBase", "torch._C._TensorBase"), "steps that a script takes by hand"),
    # Tensors and modules.
    "storage_id": TorchName(("torch._C._storage_id",)),
    "pytree": TorchName(("torch.utils._pytree",), "repeated evaluation takes its time; autocast as GPUs compute it"),
    "module_apply": TorchName(("torch.nn.Module._apply",), "modules that are moved"),
    "check_with": TorchName(("torch._check_with",), "checks of values that were not computed"),
    "worker_module": TorchName(("torch.utils.data._utils.worker",), "which worker of a loader a script asks about"),
    "worker_info": TorchName(
        ("torch.utils.data._utils.worker._worker_info",), "which worker of a loader a script asks about"
    ),
    "loader_iterator": TorchName(
        ("torch.utils.data.dataloader._BaseDataLoaderIter",), "data that loaders prepare is taken as part of a step"
    ),
    # GPUs.
    "cuda_arch_flags": TorchName(("torch._C._cuda_getArchFlags",), instead=lambda: str),  # builds for GPUs have it
    "accelerator": TorchName(("torch.accelerator",), since="2.6"),
    "accelerator_health_check": TorchName(
        ("torch.optim.Optimizer._accelerator_graph_capture_health_check",), since="2.10"
    ),
    "cuda_health_check": TorchName(("torch.optim.Optimizer._cuda_graph_capture_health_check",)),
    # The compiler.
    "dynamo": TorchName(("torch._dynamo",)),
    "is_compiling": TorchName(("torch.compiler.is_compiling",), instead=lambda: lambda: False),  # 2.2 lacks it
    "dynamo_utils": TorchName(("torch._dynamo.utils",), "whether a script has compiled anything"),
    "find_builtin": TorchName(("torch.jit._builtins._find_builtin",)),
    "register_builtin": TorchName(("torch.jit._builtins._register_builtin",)),
    # Distributed jobs.
    "c10d": TorchName(("torch._C._distributed_c10d",)),
    "fake_process_group": TorchName(("torch.testing._internal.distributed.fake_pg",), "dry runs of distributed jobs"),
    "dump_of_gloo": TorchName(("torch._C._distributed_c10d._dump_fr_trace",), since="2.7"),
    "dump_of_nccl": TorchName(("torch._C._distributed_c10d._dump_nccl_trace",)),
    "call_notes": TorchName(("torch.distributed.c10d_logger._get_msg_dict",)),
    "resolve_process_group": TorchName(
        ("torch.distributed.distributed_c10d._resolve_process_group",), "sizes of groups of functional collectives"
    ),
    "DTensor": TorchName(
        ("torch.distributed.tensor.DTensor", "torch.distributed._tensor.api.DTensor"), "tensors that are spread"
    ),
    "fully_shard": TorchName(
        ("torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard"),
        "cells of FSDP 2",
        lambda: _refuse_to_shard,
    ),
    "first_bucket_bytes": TorchName(
        ("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES",),
        instead=lambda: 1 << 20,  # as torch documents it
    ),
    "register_comm_hook": TorchName(("torch.distributed._register_comm_hook",)),
    "register_builtin_comm_hook": TorchName(("torch.distributed._register_builtin_comm_hook",)),
    "verify_parameter_shapes": TorchName(("torch.nn.parallel.distributed._verify_param_shape_across_processes",)),
    "chunk_with_empty": TorchName(
        tuple(f"{place}._fsdp_param._chunk_with_empty" for place in _FSDP2), "time: FSDP 2 makes all chunks"
    ),
    "move_states_to_device": TorchName(
        (
            "torch.distributed.fsdp._init_utils._move_states_to_device",
            *(f"{place}._fsdp_init._move_states_to_device" for place in _FSDP2),
        ),
        "parameters that FSDP moves to the GPU",
    ),
    "receive_stage": TorchName(("torch.distributed.pipelining.stage.PipelineStage._recv_meta",)),
    "StageBackwardMeta": TorchName(("torch.distributed.pipelining._utils._StageBackwardMeta",)),
    "derive_gradients": TorchName(("torch.distributed.pipelining._utils._derive_grad_metas",)),
}

_asked: dict[str, bool] = {}
"""Names and operators that were asked for, and whether torch has them."""


def __getattr__(name: str) -> Any:
    """What torch has under a name of the table, or what stands for it. It is looked up once."""
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    wanted = NAMES[name]
    found, value = _first(wanted.paths)
    _asked[name] = found
    value = globals()[name] = value if found else wanted.instead()
    return value


def _first(paths: Iterable[str]) -> tuple[bool, Any]:
    for path in paths:
        with contextlib.suppress(Exception):
            return True, _look_up(path)
    return False, None


def _look_up(path: str) -> Any:
    """What torch has at a path. Raises whatever torch raises where it has nothing there."""
    owner, _, name = path.rpartition(".")
    if not owner:
        return importlib.import_module(name)
    above = _look_up(owner)
    try:
        return getattr(above, name)
    except AttributeError:
        return importlib.import_module(path)  # a part that nobody has imported yet


def find_loaded(name: str) -> Any:
    """As the name itself, but nothing is imported for it: None while the script has not imported it."""
    if (known := globals().get(name)) is not None:
        return known
    for path in NAMES[name].paths:
        owner, _, last = path.rpartition(".")
        value = sys.modules.get(path) or getattr(sys.modules.get(owner), last, None)
        if value is not None:
            globals()[name] = value
            return value
    return None


def read_current(name: str) -> Any:
    """What torch has under a name now; None where it lacks it. For variables, which change."""
    return _first(NAMES[name].paths)[1]


def replace(name: str, make: Callable[[Any], Any]) -> bool:
    """Put `make(original)` at every place at which torch has a name. Whether it has one."""
    replaced = False
    for path in NAMES[name].paths:
        owner, _, last = path.rpartition(".")
        with contextlib.suppress(Exception):
            original = _look_up(path)
            setattr(_look_up(owner), last, make(original))
            replaced = True
    _asked[name] = replaced
    return replaced


def find_operator(path: str) -> Any:
    """An operator by its name: all of `aten.mm`, or the one of `aten.mm.default`. None where torch lacks it."""
    found, value = _first((f"torch.ops.{path}",))
    _asked[path] = found
    return value


def find_operators(*paths: str) -> frozenset[Any]:
    """The variants and operators of these names that torch has."""
    return frozenset(value for path in paths if (value := find_operator(path)) is not None)


def find_overloads(*packets: str) -> frozenset[Any]:
    """All variants of the operators of these names that torch has."""
    return frozenset(getattr(packet, name) for packet in find_operators(*packets) for name in packet.overloads())


def key_by_operator(table: Mapping[str, _Value]) -> dict[Any, _Value]:
    """The table with operators in the place of their names; what torch lacks is left out."""
    return {value: entry for path, entry in table.items() if (value := find_operator(path)) is not None}


def schema_of(func: Any) -> Any:
    """The schema of an operator; None for what has none, such as operators of higher order."""
    return getattr(func, "_schema", None)


def packet_of(func: Any) -> Any:
    """The operator of which this is a variant; itself where it is none."""
    return getattr(func, "_overloadpacket", func)


def calls_kernel(func: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
    """Call the kernel that an operator has for one key of the dispatcher."""
    return func._op_dk(key, *args, **kwargs)


def base_of(tensor: Any) -> Any:
    """The tensor of which this one is a view; None for every other one."""
    return getattr(tensor, "_base", None)


def storage_number(storage: Any) -> int:
    """The identity of a storage, or of a sparse tensor, as long as it lives."""
    return int(getattr(storage, "_cdata", None) or id(storage))


def local_part(value: Any) -> Any:
    """This rank's part of a distributed tensor; every other value unchanged."""
    return getattr(value, "_local_tensor", value)


def change_tensors(module: Any, change: Callable[[Any], Any]) -> Any:
    """Change all tensors of a module, in the way that its class does it."""
    return module._apply(change)


def what_is_lost() -> list[str]:
    """A sentence for each name that was asked for, that this torch lacks, and without which something is lost."""
    lacking = [name for name, found in _asked.items() if not found and name in NAMES]
    return [
        f"this torch has no {NAMES[name].paths[0]}: {NAMES[name].lost} cannot be followed"
        for name in lacking
        if NAMES[name].lost
    ]


def what_is_needed() -> str:
    """The first name without which there is no dry run and which this torch lacks; empty where it has all."""
    for wanted in NAMES.values():
        if wanted.needed and not _first(wanted.paths)[0]:
            return wanted.paths[0]
    return ""
