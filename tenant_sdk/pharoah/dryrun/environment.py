"""The environment of the child of a dry run: what it has to do, and the GPUs that it simulates."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from pharoah._errors import UnknownReason
from pharoah._sidecar_link import DRY_RUN
from pharoah.capture.hardware import DRY_RUN_DRIVER, DRY_RUN_GPUS, driver, gpu_names
from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun.sandbox_mode import SCRATCH_FOLDER, UNPROTECTED
from pharoah_archetypes.devices import device_named, devices

RECORD_CODE = "PHAROAH_DRY_RUN_CODE"
"""Set when the fingerprint shall also state which code of which packages ran."""
EXTENSIONS = "PHAROAH_DRY_RUN_EXTENSIONS"
"""Names of extensions that get substitutes, with commas between them."""
MAIL = "PHAROAH_DRY_RUN_MAIL"
"""Objects that the stage before this one of a pipeline has sent."""
MITIGATION = "PHAROAH_DRY_RUN_MITIGATION"
"""The mitigation to apply, as `Mitigation.to_json` writes it."""
PROCESSES = "PHAROAH_DRY_RUN_PROCESSES"
"""How many processes of the job its launcher would start on this node, or the script itself."""
SIMULATED_GPUS = "PHAROAH_GPUS"
"""Set by the user: check a job for these GPUs instead of this machine's, `8x NVIDIA H100 80GB HBM3` or a list with
commas."""
_WAYS_OUT_OF_THE_SANDBOX = {"DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS", "SSH_AUTH_SOCK", "NOTIFY_SOCKET"}
"""Variables that lead to a socket of another program."""


def child_environment(
    variables: Mapping[str, str],
    own: Mapping[str, str],
    *,
    record_code: bool,
    mitigation: Mitigation | None,
    gpus: str = "",
    gpu_driver: str = "",
    substitutes: Sequence[str] = (),
    mail: str = "",
) -> dict[str, str]:
    """The environment of the child: the one that the job would have, and `own` variables of the dry run.

    `substitutes` are the extensions (`pharoah.dryrun.extensions`) that get some. `mail` is what an earlier stage of a
    pipeline has sent.
    `gpus` takes precedence over PHAROAH_GPUS. Without either the GPUs are those of this machine that the job would see:
    its command may set CUDA_VISIBLE_DEVICES. Raises UnknownReason when either is not a list of known GPUs. For GPUs
    that this machine does not have, the driver is `gpu_driver` or unknown.
    """
    simulated = _name_simulated_gpus(gpus)
    return {
        **{name: value for name, value in variables.items() if name not in _WAYS_OUT_OF_THE_SANDBOX},
        DRY_RUN: "1",
        DRY_RUN_GPUS: ",".join(simulated or gpu_names(variables)),
        DRY_RUN_DRIVER: gpu_driver or ("" if simulated else driver()),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",
        **({RECORD_CODE: "1"} if record_code else {}),
        **({EXTENSIONS: ",".join(substitutes)} if substitutes else {}),
        **({MAIL: mail} if mail else {}),
        **({MITIGATION: mitigation.to_json()} if mitigation else {}),
        **own,
    }


def sandbox_variables(folder: str, *, allow_unprotected: bool) -> dict[str, str]:
    """What `pharoah.dryrun.sandbox` reads: a folder for temporary files, or nothing; and the user's word."""
    return {SCRATCH_FOLDER: folder, UNPROTECTED: "1" if allow_unprotected else ""}


def _name_simulated_gpus(gpus: str) -> list[str]:
    """Model names of the GPUs that the option or PHAROAH_GPUS asks for. Raises UnknownReason."""
    name_of_setting, text = ("--gpus ", gpus) if gpus else (f"{SIMULATED_GPUS}=", os.environ.get(SIMULATED_GPUS, ""))
    names: list[str] = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"(\d{1,3})\s?x\s+(\S.*)|(\D.*)", part)
        if not match:
            raise UnknownReason(
                f"{name_of_setting}{text}: write `8x NVIDIA H100 80GB HBM3` or names separated by commas"
            )
        name = match[2] or match[3]
        if device_named(name) is None:
            known = ", ".join(device.part for device in devices())
            raise UnknownReason(f"{name_of_setting}{text}: no data sheet is known for GPU {name}; known are {known}")
        names += [name] * int(match[1] or 1)
    return names
