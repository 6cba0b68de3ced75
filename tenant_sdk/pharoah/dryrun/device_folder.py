"""The folder /dev of a sandbox: devices that hold nothing, terminals of its own, shared memory of its own."""

from __future__ import annotations

from pathlib import Path

from pharoah.dryrun.mounts import IsolationError, MountFlag, bind_read_only, mount

DEVICES = Path("/dev")
_HARMLESS = ("null", "zero", "full", "random", "urandom", "tty")
"""`tty` is the terminal of the session, and a dry run has a session without one."""
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_WITHOUT_PROGRAMS = MountFlag.NO_SUID | MountFlag.NO_EXECUTION


def make_device_folder(target: Path, shared_bytes: int) -> None:
    """Build the folder in place of the machine's /dev. Raises OSError."""
    mount("tmpfs", target, "tmpfs", _WITHOUT_PROGRAMS | MountFlag.NO_DEVICES, "size=1m,mode=0755")
    for name in _HARMLESS:
        if (DEVICES / name).exists():
            (target / name).touch()
            # Read-only forbids to change the device's mode and owner, not to write to it.
            bind_read_only(DEVICES / name, target / name, flags=_WITHOUT_PROGRAMS)
    for name, leads_to in _LINKS.items():
        (target / name).symlink_to(leads_to)
    (target / "shm").mkdir()
    options = f"size={shared_bytes},mode=1777"
    mount("tmpfs", target / "shm", "tmpfs", MountFlag.NO_SUID | MountFlag.NO_DEVICES, options)
    _make_terminals(target / "pts")
    for device in DEVICES.glob("nvidia*"):
        if not device.is_dir():  # scripts look whether it exists
            (target / device.name).touch()
            mount(target / "null", target / device.name, flags=MountFlag.BIND)  # it stays read-only


def _make_terminals(folder: Path) -> None:
    folder.mkdir()
    try:
        mount("devpts", folder, "devpts", _WITHOUT_PROGRAMS, "newinstance,ptmxmode=0666,mode=0620")
    except IsolationError:
        pass  # then there are no terminals
