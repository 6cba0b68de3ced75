"""A file with one step of a job: its operators, what they read from outside, and digests of what they computed.

The file is an uncompressed ZIP archive. `step.json` holds the class of the node and the events; `loads/N` holds the
bytes of one storage at the moment at which an operator first read it. It has weights and data of the job, so it stays
with the tenant, and only its owner may read it.
"""

from __future__ import annotations

import hashlib
import json
import weakref
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pharoah._errors import PharoahError
from pharoah_system.files import AtomicFile
from pharoah_system.trusted_paths import UntrustedPathError, open_unshared

FORMAT = 2
STEP = "step.json"
MOST_BYTES = 64 << 30
"""What storages may take: a step that reads more is not saved."""
CPU_VARIABLES = (
    "ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_CPU_ISA_HINTS",
    "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_MAX_CPU_ISA", "DNNL_CPU_ISA_HINTS", "DNNL_DEFAULT_FPMATH_MODE",
)  # fmt: skip
GPU_VARIABLES = ("NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
"""What chooses instructions, precision or algorithms, by the manuals of torch, oneMKL, oneDNN and cuBLAS."""


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
        if self._bytes > MOST_BYTES:
            raise ValueError(f"it reads more than {MOST_BYTES >> 30} GiB")
        self._entries += 1
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
        self._archive.writestr(STEP, json.dumps(data))
        self._archive.close()
        self._new.keep()

    def discard(self) -> None:
        """Nothing stays of it. In a forked child nothing more is written: the file belongs to the parent."""
        self._archive.fp = None  # closing it would write an end, into the file of the parent or onto a full disk
        self._new.discard()


class StepReader:
    """Reads a saved step. Raises StepFileError."""

    def __init__(self, path: Path, *, trust: bool = False) -> None:
        """`trust`: also a file that others own or may write to."""
        try:
            file = _opened(path, trust)
            weakref.finalize(self, file.close)
            self._archive = zipfile.ZipFile(file)
            text = self._archive.read(STEP)
            data = json.loads(text)
        except UntrustedPathError as error:
            raise StepFileError(f"{error}; if you know who has written it, add --trust") from None
        except OSError as error:
            raise StepFileError(f"{path}: {error.strerror}") from None
        except (zipfile.BadZipFile, KeyError, ValueError):
            raise StepFileError(f"{path}: not a saved step; `pharoah run --step-file FILE` writes one") from None
        if data.get("format") != FORMAT:
            raise StepFileError(f"{path}: format: expected {FORMAT}; made by another release of pharoah?")
        kinds = {kind.__name__: kind for kind in (Load, Computation)}
        try:
            self.step = SavedStep(
                id=hashlib.sha256(text).hexdigest()[:16],
                node=data["node"],
                rank=data["rank"],
                node_class=NodeClass(**data["node_class"]),
                switches=Switches(**data["switches"]),
                events=[kinds[kind](**values) for kind, values in data["events"]],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StepFileError(f"{path}: {STEP}: {error}") from None
        self.path = path

    def load(self, entry: str) -> bytearray:
        """The bytes of a storage."""
        try:
            return bytearray(self._archive.read(entry))
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise StepFileError(f"{self.path}: {entry}: {error}; copy the file again") from None


def _opened(path: Path, trust: bool) -> BinaryIO:
    """Raises UntrustedPathError, OSError."""
    return path.open("rb") if trust else open_unshared(path)


def _storages(value: Any) -> Any:
    if isinstance(value, dict):
        if "storage" in value:
            yield value["storage"]
        else:
            yield from (one for part in value.values() for one in _storages(part))
    elif isinstance(value, list):
        yield from (one for part in value for one in _storages(part))
