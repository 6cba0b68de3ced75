"""Saves one step of a running job: a dispatch mode that sees every operator below autograd. It imports torch.

An operator is saved with its arguments, as views of numbered storages, and with the digest of what it computed. A
storage is written when an operator reads what no saved operator has computed. Random operators, collectives and
operators outside of torch's own are not computed again: what they leave behind is such an outside content. So is what
is written past the dispatcher, which the digests of storages show.
"""

from __future__ import annotations

import logging
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pharoah.capture.recorder import is_compiled, is_distributed
from pharoah.replay.arguments import find_changed, find_computed, is_view, tensors, write
from pharoah.replay.contents import Contents, address, content_of
from pharoah.replay.digests import digest_of, node_class, switches
from pharoah.replay.operators import is_permitted
from pharoah.replay.step_file import Computation, Event, Load, StepWriter
from pharoah.replay.warning import warn
from pharoah.torch_names import OpOverload, TorchDispatchMode

log = logging.getLogger("pharoah")

UNDEFINED = ("aten.empty", "aten.new_empty", "aten.resize_")
"""Operators that leave memory as it is."""


class StepSaver(TorchDispatchMode):
    """Writes a step to a file, from `__enter__` to `finish`. Its first own fault ends the saving, never the job."""

    supports_higher_order_operators = True

    def __init__(self, path: Path, rank: int) -> None:
        """Raises OSError when the file cannot be written, and ValueError where a step cannot be saved."""
        super().__init__()  # type: ignore[no-untyped-call]
        if is_compiled():
            raise ValueError("compiled code hides its operators; set TORCHDYNAMO_DISABLE=1 to save a step")
        if torch.cuda.is_initialized() and torch.backends.cudnn.benchmark:
            raise ValueError("torch.backends.cudnn.benchmark chooses algorithms by their speed, so that bits vary")
        self._path, self._rank = path, rank
        self._writer = StepWriter(path)
        self._events: list[Event] = []
        self._contents = Contents()
        self._broken = ""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and is_distributed(types):
            return NotImplemented  # it is dispatched again for the local parts and for what is sent
        kwargs = kwargs or {}
        if not self._broken and _records_a_cuda_graph():
            self._break("the step is recorded as a CUDA graph, whose values cannot be read meanwhile")
        if self._broken or is_view(func):
            return func(*args, **kwargs)
        saved = None
        try:
            saved = self._arguments(func, args, kwargs)
        except Exception as fault:  # noqa: BLE001 - the user's operator runs; only the saving ends
            self._break(_words(fault))
        result = func(*args, **kwargs)
        if not self._broken:
            try:
                self._note(func, args, kwargs, saved, result)
            except Exception as fault:  # noqa: BLE001 - the user's operator has run; only the saving ends
                self._break(_words(fault))
        return result

    def finish(self) -> None:
        """The step is over: complete the file, or say why there is none. Raises nothing."""
        if not self._broken:
            try:
                on_gpu = any(isinstance(event, Load) and event.device != "cpu" for event in self._events)
                self._writer.finish(platform.node(), self._rank, node_class(on_gpu), switches(), self._events)
            except Exception as fault:  # noqa: BLE001 - the training loop goes on
                self._break(_words(fault))
        if self._broken:
            warn(f"the step is not saved in {self._path}: {self._broken}")
        else:
            log.info("a step is saved in %s; `pharoah replay` computes it again", self._path)
        self._events, self._contents = [], Contents()

    def abandon(self, reason: str) -> None:
        """Save nothing, and leave nothing behind. `finish` says the reason."""
        if not self._broken:
            self._break(reason)

    def _break(self, reason: str) -> None:
        self._broken = reason
        try:
            self._writer.discard()
        except OSError as error:
            log.debug("step file: %s", error)

    def _arguments(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """The arguments before they change; None for an operator that is not computed again."""
        if not _is_computed_again(func):
            return None
        return write(args, self._number), {name: write(value, self._number) for name, value in kwargs.items()}

    def _note(self, func: Any, args: Any, kwargs: Any, saved: tuple[Any, Any] | None, result: Any) -> None:
        touched, returned = list(find_changed(func, args, kwargs)), list(tensors(result))
        if saved is None:
            for tensor in (*touched, *returned):
                self._contents.forget(tensor)
            return
        known = {address(tensor) for tensor in tensors([args, kwargs])}
        if not touched and all(address(tensor) in known for tensor in returned):
            return  # a view, or a number for the script
        for tensor in touched:
            self._contents.rewritten(tensor)
        contents = self._contents
        results = [contents.number(one) if address(one) in known else contents.add(one) for one in returned]
        name = str(func)
        digest = "" if name.startswith(UNDEFINED) else digest_of(find_computed(func, args, kwargs, result))
        self._events.append(Computation(name, *saved, results, digest, torch.is_grad_enabled()))

    def _number(self, tensor: Tensor) -> int:
        """The number of a tensor's storage, whose content is written when no saved operator has computed it."""
        known = self._contents.find_unchanged(tensor)
        if known is not None:
            return known
        # The digests first: when something writes at the same time, the next comparison shows it.
        number, storage = self._contents.add(tensor), tensor.untyped_storage()
        entry = self._writer.add(content_of(storage).cpu().numpy().data, storage.nbytes())
        self._events.append(Load(number, entry, storage.device.type))
        return number


def _records_a_cuda_graph() -> bool:
    """Reading a value from the device would end the recording with an error, in the job's own code."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _words(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"


def _is_computed_again(func: Any) -> bool:
    return isinstance(func, OpOverload) and is_permitted(func)
