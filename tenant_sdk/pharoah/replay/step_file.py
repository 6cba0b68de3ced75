"""A file with one step of a job: its operators, what they read from outside, and digests of what they computed.

The file is an uncompressed ZIP archive. `step.json` holds the class of the node and the events; `loads/N` holds the
bytes of one storage at the moment at which an operator first read it. It has weights and data of the job, so it stays
with the tenant, and only its owner may read it.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pharoah._errors import PharoahError
from pharoah_protocol.typed_json import FieldError, read_object
from pharoah_system.bounded_reading import JsonLimits, UnreadableInput, ZipReader, check_json, parse_json
from pharoah_system.files import AtomicFile
from pharoah_system.trusted_paths import UntrustedPathError, open_unshared

FORMAT = 2
STEP = "step.json"
MAX_BYTES = 64 << 30
"""What storages may take: a step that reads more is not saved."""
CPU_VARIABLES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "DNNL_CPU_ISA_HINTS", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
GPU_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
"""What chooses instructions, precision or algorithms, by the manuals of torch, oneMKL, oneDNN and cuBLAS."""
FLAGS = (
    "cudnn.enabled", "cudnn.deterministic", "cudnn.benchmark", "cudnn.allow_tf32",
    "cuda.matmul.allow_fp16_reduced_precision_reduction", "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "cuda.matmul.allow_fp16_accumulation", "mkldnn.enabled", "mkldnn.deterministic",
)  # fmt: skip
"""Flags of `torch.backends` that choose algorithms or their precision; some releases of torch have fewer."""
FLUSH_DENORMAL = "flush_denormal"
MATMUL_PRECISIONS = ("highest", "high", "medium")
"""What `torch.set_float32_matmul_precision` takes."""
MAX_THREADS = 4096
"""No machine has more cores (`node_profile.MAX_THREADS`)."""
MAX_ENTRIES = 30_000
"""Storages of one step: their names and those of the operators are read as a whole."""
DEVICES = ("cpu", "cuda")
_VALUE = re.compile(r"[\w.,:=+-]{0,64}", re.ASCII)
"""The value of a variable: the names of instruction sets and precisions, and sizes."""
STEP_LIMITS = JsonLimits(max_bytes=16 << 20)
"""The limits of `step.json`: what it takes in memory is bounded as well, at about 25,000 operators."""


class StepFileError(PharoahError):
    """A file that is no saved step; the message names it."""


@dataclass(frozen=True)
class Load:
    """A storage gets content that no operator of this step has computed: weights, data, random numbers, what other
    ranks have sent."""

    storage: int
    entry: str
    """Where in the archive its bytes are."""
    device: str
    """The kind of the device: cpu or cuda."""


@dataclass(frozen=True)
class Computation:
    """An operator computes."""

    operator: str
    """With its overload: `aten.mm.default`."""
    args: list[Any]
    """As `pharoah.replay.arguments` writes them."""
    kwargs: dict[str, Any]
    results: list[int]
    """The storage of each tensor that it returns."""
    digest: str
    """A hash of the bits of everything that it has computed; empty where those are undefined."""
    grad: bool = False
    """Whether gradients were recorded: some operators return more then."""

    @property
    def reads(self) -> list[int]:
        """The storages of its arguments."""
        return list(_storages([self.args, self.kwargs]))


Event = Load | Computation


@dataclass(frozen=True)
class NodeClass:
    """What must be equal on two nodes for their bits to be equal."""

    torch: str
    cpu: str
    """Model of the processor, and the instructions that torch uses."""
    gpu: str
    """Model of the GPU, and the versions of CUDA and cuDNN; empty where a step uses none."""
    variables: dict[str, str] = field(default_factory=dict)
    """Variables of the environment that libraries read once, when they are first used, and that decide bits: those of
    CPU_VARIABLES and GPU_VARIABLES that were set."""

    def difference(self, other: NodeClass) -> str:
        """What differs, in words; empty for the same class."""
        pairs = [("torch", self.torch, other.torch), ("cpu", self.cpu, other.cpu), ("gpu", self.gpu, other.gpu)]
        for name in sorted({*self.variables, *other.variables}):
            pairs.append((name, self.variables.get(name, ""), other.variables.get(name, "")))
        return ", ".join(f"{name} {mine!r} and {theirs!r}" for name, mine, theirs in pairs if mine != theirs)


@dataclass(frozen=True)
class Switches:
    """What a script chooses for all operators, and what their bits depend on."""

    threads: int
    matmul_precision: str
    deterministic: bool
    """`torch.use_deterministic_algorithms`."""
    flags: dict[str, bool] = field(default_factory=dict)
    """Flags of `torch.backends` by their names there, such as `cudnn.allow_tf32`, and `flush_denormal`."""


@dataclass(frozen=True)
class SavedStep:
    """What `step.json` holds."""

    id: str
    """Digest of everything below."""
    node: str
    rank: int
    node_class: NodeClass
    switches: Switches
    events: list[Event]

    @property
    def computations(self) -> list[Computation]:
        return [event for event in self.events if isinstance(event, Computation)]


class StepWriter:
    """Writes a step while it happens. Whoever opens it calls `finish` or `discard`. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._new = AtomicFile(path, delete_abandoned=True)
        self._archive = zipfile.ZipFile(self._new.file, "w", zipfile.ZIP_STORED)
        self._bytes = self._entries = 0

    def add(self, content: Any, size: int) -> str:
        """Write the bytes of a storage; gives the name of the entry. Raises ValueError when they are too many."""
        self._bytes += size
        if self._bytes > MAX_BYTES:
            raise ValueError(f"it reads more than {MAX_BYTES >> 30} GiB")
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise ValueError(f"it reads more than {MAX_ENTRIES:,} storages")
        entry = f"loads/{self._entries}"
        with self._archive.open(entry, "w", force_zip64=True) as file:
            file.write(content)
        return entry

    def finish(self, node: str, rank: int, node_class: NodeClass, switches: Switches, events: Sequence[Event]) -> None:
        """The step is complete: from now on the file has its name."""
        data = {
            "format": FORMAT,
            "node": node,
            "rank": rank,
            "node_class": asdict(node_class),
            "switches": asdict(switches),
            "events": [[type(event).__name__, asdict(event)] for event in events],
        }
        text = json.dumps(data, separators=(",", ":"))
        try:
            check_json(text.encode(), STEP, STEP_LIMITS)
        except UnreadableInput:
            many = f"it has {len(events):,} operators and storages, more than a replay reads"
            raise ValueError(f"{many}: save a step with fewer micro-batches") from None
        self._archive.writestr(STEP, text)
        self._archive.close()
        self._new.keep()

    def discard(self) -> None:
        """Nothing stays of it. In a forked child nothing more is written: the file belongs to the parent."""
        self._archive.fp = None  # closing it would write an end, into the file of the parent or onto a full disk
        self._new.discard()


class StepReader:
    """Reads a saved step, which is data and comes from anybody: all names in it stand in tables, and all sizes are
    those of the file. Raises StepFileError."""

    def __init__(self, path: Path, *, trust: bool = False) -> None:
        """`trust`: also a file that others own or may write to."""
        self.path = path
        try:
            self._archive = ZipReader(path, None if trust else open_unshared(path))
            if STEP not in self._archive:
                raise UnreadableInput(path, f"it has no {STEP}")
            text = self._archive.read(STEP, STEP_LIMITS.max_bytes)
            data = parse_json(bytes(text), path, STEP_LIMITS)
        except UntrustedPathError as error:
            raise StepFileError(f"{error}; if you know who has written it, add --trust") from None
        except OSError as error:
            raise StepFileError(f"{path}: {error.strerror}") from None
        except UnreadableInput as error:
            raise StepFileError(
                f"{path}: not a saved step: {error.problem}; `pharoah run --step-file FILE` writes one"
            ) from None
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise StepFileError(f"{path}: format: expected {FORMAT}; made by another release of pharoah?")
        try:
            self.step = _step(data, hashlib.sha256(text).hexdigest()[:16])
            for event in self.step.events:
                if isinstance(event, Load):
                    self._archive.size(event.entry)  # before anything is computed
        except (FieldError, UnreadableInput) as error:
            raise StepFileError(f"{path}: {STEP}: {error}") from None

    def load(self, entry: str) -> bytearray:
        """The bytes of a storage."""
        try:
            return self._archive.read(entry)
        except (OSError, UnreadableInput) as error:
            raise StepFileError(f"{self.path}: {entry}: {error}; copy the file again") from None


def _step(data: dict[str, Any], id: str) -> SavedStep:
    """Raises FieldError that names the field."""
    events = data.pop("events", None)
    if not isinstance(events, list):
        raise FieldError("events: a list was expected")
    step = read_object(SavedStep, {**data, "id": id, "events": []}, "step")
    _check_class(step.node_class)
    _check_switches(step.switches)
    step.events.extend(_event(number, event) for number, event in enumerate(events))
    return step


def _event(number: int, event: Any) -> Event:
    kinds: dict[str, type[Event]] = {kind.__name__: kind for kind in (Load, Computation)}
    if not isinstance(event, list) or len(event) != 2 or not isinstance(event[0], str) or event[0] not in kinds:
        raise FieldError(f"events[{number}]: one of {', '.join(kinds)} was expected, with its fields")
    found = read_object(kinds[event[0]], event[1], f"events[{number}]")
    if isinstance(found, Load) and found.device not in DEVICES:
        raise FieldError(f"events[{number}].device: {found.device!r:.40} is not one of {', '.join(DEVICES)}")
    return found


def _check_class(of: NodeClass) -> None:
    """Refuse what would be set in the environment and is not ours to set."""
    for name, value in of.variables.items():
        if name not in CPU_VARIABLES + GPU_VARIABLES:
            raise FieldError(f"node_class.variables: {name!r:.40} is not one that a step depends on")
        if not _VALUE.fullmatch(value):
            raise FieldError(f"node_class.variables.{name}: {value!r:.40} is no value of it")


def _check_switches(of: Switches) -> None:
    if unknown := sorted(of.flags.keys() - {*FLAGS, FLUSH_DENORMAL}):
        raise FieldError(f"switches.flags: {unknown[0]!r:.40} is not one that a step depends on")
    if of.matmul_precision not in MATMUL_PRECISIONS:
        raise FieldError(f"switches.matmul_precision: expected one of {', '.join(MATMUL_PRECISIONS)}")
    if not 0 < of.threads <= MAX_THREADS:
        raise FieldError(f"switches.threads: expected 1 to {MAX_THREADS}")


def _storages(value: Any) -> Any:
    if isinstance(value, dict):
        if "storage" in value:
            yield value["storage"]
        else:
            yield from (one for part in value.values() for one in _storages(part))
    elif isinstance(value, list):
        yield from (one for part in value for one in _storages(part))
