"""The file system of the cell fills up."""

from __future__ import annotations

from pharoah_benchmarks.faults._checkpoints import CHECKPOINT_BYTES, Checkpoints
from pharoah_benchmarks.faults._fault import Dose, Fault, FaultError, Place
from pharoah_benchmarks.faults._namespaces import mount_memory
from pharoah_benchmarks.micro import Resource

SPACE_BYTES = 64 << 20
"""Size of the file system that fills up; it is in memory."""
_NEEDS = "a mount namespace (root, or user namespaces and a process with one thread)"


class _FillingDisk(Checkpoints):
    """Writes checkpoints to a small file system over the scratch folder, in which another file grows."""

    def __init__(self, place: Place) -> None:
        try:
            mount_memory(place.folder, SPACE_BYTES)
        except OSError as error:
            raise FaultError(f"it needs {_NEEDS}: {error}") from None
        super().__init__(place.folder)
        self._schedule = place.schedule
        self._other = (place.folder / "other").open("wb", buffering=0)
        self._size = 0

    def after_step(self) -> None:
        """Fill, then write the checkpoint. Raises OSError when there is no space left for it."""
        wanted = min(int(self._schedule.amount()), SPACE_BYTES)
        while self._size < wanted:
            chunk = min(CHECKPOINT_BYTES, wanted - self._size)
            try:
                self._size += self._other.write(bytes(chunk)) or 0
            except OSError:  # what fills the disk is somebody else, who does not mind
                break
        super().after_step()

    def end(self) -> None:
        self._other.close()


FAULT = Fault(
    name="disk_full",
    help="the cell writes a checkpoint of 1 MiB after each step to a file system of 64 MiB in memory, which it alone "
    "sees; from the onset on another file grows there until no space is left. No real disk is filled",
    resource=Resource.STORAGE,
    dose=Dose(unit="bytes per second by which the other file grows", least=1e4, most=1e10, examples=(12e6, 48e6)),
    inside=_FillingDisk,
    needs=_NEEDS,
)
