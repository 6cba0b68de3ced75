"""Files of weights in the safetensors format: fakes are saved as zeros, which take no room on the disk.

A script may save its model before the first step and read it again, so names, shapes and dtypes must be there.
Libraries find weights that are tied by their addresses, so fakes have some.

Patches torch and safetensors for the rest of the process; in the dry-run child only.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from math import prod
from typing import Any

import torch

from pharoah.torch_names import FakeTensor, storage_number, unset_fake_temporarily

_DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
}  # fmt: skip
"""Names of dtypes in the format (https://huggingface.co/docs/safetensors)."""
_ALIGNED_BYTES = 8


def give_addresses_to_fakes() -> None:
    """Let every fake storage have an address of its own; torch gives all of them zero."""
    original = torch.UntypedStorage.data_ptr

    @functools.wraps(original)
    def data_ptr(self: torch.UntypedStorage) -> int:
        return storage_number(self) if self.device.type == "meta" else original(self)

    torch.UntypedStorage.data_ptr = data_ptr  # type: ignore[method-assign, assignment]
    FakeTensor.data_ptr = _address  # type: ignore[method-assign, assignment]


def _address(self: FakeTensor) -> int:
    return storage_number(self.untyped_storage()) + int(self.storage_offset()) * self.element_size()


def save_fakes_as_zeros() -> None:
    """Let safetensors save fakes and read files, where it is installed."""
    if find_spec("safetensors") is None:
        return
    import safetensors.torch

    save, load = safetensors.torch.save_file, safetensors.torch.load_file

    @functools.wraps(save)
    def save_file(tensors: Any, filename: Any, metadata: Any = None) -> None:
        if any(isinstance(tensor, FakeTensor) for tensor in tensors.values()):
            _write(tensors, filename, metadata)
        else:
            save(tensors, filename, metadata)

    @functools.wraps(load)
    def load_file(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():  # it makes tensors of the file's memory
            return load(*args, **kwargs)

    safetensors.torch.save_file, safetensors.torch.load_file = save_file, load_file


def _write(tensors: Mapping[str, Any], path: str | os.PathLike[str], metadata: Mapping[str, str] | None) -> None:
    """A file with the names and shapes of tensors; their bytes are a hole in the file."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name, tensor in tensors.items():
        shape = [int(size) for size in tensor.shape]
        begin, end = end, end + prod(shape) * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED_BYTES)
    with open(path, "wb") as file:  # noqa: PTH123 - a name or a path
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
