"""One job in all forms in which people start it: every form must have the fingerprint of the plain one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from unittest.mock import patch

from evaluation.coverage.job import Job, place
from evaluation.figures import Figures
from pharoah import PharoahError
from pharoah.dryrun import dry_run
from pharoah_archetypes import Fingerprint

FOLDER = Path(__file__).parent / "launched"
DRY_SECONDS = 120.0
PLAIN = "python train.py"
FORMS = (
    PLAIN,
    "python -u -W ignore -X dev -O train.py",
    "python -m train",
    "env EPOCHS=1 python train.py --steps 7",
    "nice -n 5 timeout 600 python train.py",
    "bash train.sh",
    "sh -c python${IFS}train.py",
    "make train",
    "ipython train.py",
    "torchrun --nproc-per-node 1 train.py",
    "python -m torch.distributed.run --standalone train.py",
    "python -m torch.distributed.launch --nproc_per_node=1 train.py",
    "accelerate launch --config_file accelerate.yaml train.py",
    "deepspeed --num_gpus 1 train.py",
    "fabric run train.py",
    "srun -n 1 python train.py",
    "mpirun -np 1 python train.py",
    "uv run train.py",
    "conda run -p .venv python train.py",
)
"""Command lines without quotes, split at blanks."""


def measure(figures: Figures, interpreter: str) -> None:
    """Add how many forms have the fingerprint of the plain command."""
    found = {form: _structure(form, interpreter) for form in FORMS}
    for form, structure in found.items():
        if structure != found[PLAIN]:
            print(f"  {form}: {structure}", flush=True)
    equal = sum(structure == found[PLAIN] for structure in found.values())
    figures.ratio("launchers_one_fingerprint_ratio", equal, len(FORMS), 1.0)


def _structure(form: str, interpreter: str) -> str:
    """The fingerprint that a form has, apart from the machine; the reason where there is none."""
    with place(Job(form, (), FOLDER)) as folder, chdir(folder), _environment(interpreter, folder):
        try:
            return _shown(dry_run(form.split(), DRY_SECONDS).fingerprint)
        except PharoahError as reason:
            return str(reason)


def _shown(fingerprint: Fingerprint) -> str:
    return f"{fingerprint.archetype} {sorted(fingerprint.features.items())} {fingerprint.sizes['parameters']}"


@contextmanager
def _environment(interpreter: str, folder: Path) -> Iterator[None]:
    """The libraries' environment is active, and also the environment of a project in this folder."""
    programs = Path(interpreter).parent
    (folder / ".venv").symlink_to(programs.parent)
    with patch.dict(os.environ, {"PATH": f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}):
        yield
