"""Folders that another user of the machine has prepared, under everything of the product that writes a file.

The victim is root, for whom the system refuses nothing; the other user is `nobody`. Each writer is the product's own
code. A case counts as taken over when something in the victim's home has changed, when what we wrote belongs to the
other user, can be written by others, or can be read where it is private, and when the product uses what somebody else
has put there. Writers that take no care are the control, which must be taken over. In folders of honest users every
writer must write.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from evaluation.figures import Figures
from evaluation.hardening.file_writers import CONTROLS, REFUSALS, Writer, writers
from tests.harness.other_user import NOBODY
from tests.harness.planted_folders import Ground, Situation, ground, situations, swapped, taken_over, tree

MAX_CASE_SECONDS = 60
"""A writer that waits for somebody else's pipe waits for ever; the slowest one has a dry run."""
SWAPS, QUICK_SWAPS, SLOW_SWAPS = 40, 10, 2
"""How often each writer writes while another process swaps names as fast as it can; a slow one takes seconds."""


class Case(NamedTuple):
    """One writer in one situation."""

    name: str
    honest: bool
    wrote: bool
    taken: str
    """What went wrong; empty for nothing."""


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add `files_taken_over` and `files_written_where_allowed_ratio`."""
    if os.geteuid() != 0:
        for key in ("files_taken_over", "files_written_where_allowed_ratio"):
            figures.skip(key, "needs root, who can be another user as well")
        return
    logging.disable(logging.WARNING)  # each refusal is logged, as it should be
    try:
        cases = list(_cases(quick, seed))
        controls = [_planted(one, situation, one.names) for one in CONTROLS for situation in situations()]
    finally:
        logging.disable(logging.NOTSET)
    taken = [case for case in cases if case.taken]
    honest = [case for case in cases if case.honest]
    for case in cases:
        if case.taken or (case.honest and not case.wrote):
            print(f"  {'TAKEN OVER' if case.taken else 'NOT WRITTEN'}: {case.name}: {case.taken}", flush=True)
    figures.details["folders"] = [f"{case.name}: {case.taken}" for case in taken]
    figures.add("files_taken_over", len(taken), "0", not taken, f"{len(cases)} cases")
    noticed = sum(bool(case.taken) for case in controls)
    least = len(CONTROLS)
    figures.add("files_taken_over_control", noticed, f">= {least}", noticed >= least, f"{len(controls)} cases")
    figures.ratio("files_written_where_allowed_ratio", sum(case.wrote for case in honest), len(honest), 1.0)
    hostile = Counter(case.wrote for case in cases if not case.honest)
    figures.add("folder_cases_refused", hostile[False], interval=f"of {sum(hostile.values())} hostile ones")


def _cases(quick: bool, seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    chosen = list(writers(quick))
    chance.shuffle(chosen)
    for writer in chosen:
        for situation in situations():
            yield _planted(writer, situation, writer.names)
            if deepest := [name for name in writer.names if "/" in name and not situation.honest]:
                yield _planted(writer, situation, deepest)
        yield _swapped(writer, SLOW_SWAPS if writer.slow else QUICK_SWAPS if quick else SWAPS)
        if writer.reads is not None:
            yield from _given(writer, writer.reads)


def _planted(writer: Writer, situation: Situation, names: Sequence[str]) -> Case:
    """Everything that can be foreseen was there before."""
    with ground() as made:
        situation.prepare(made, names)
        home, before = tree(made.home), tree(made.shared)
        refusal = _attempted(writer.write, made.folder)
        taken = taken_over(made, home, before, private=writer.private)
        new = {name: found for name, found in tree(made.shared).items() if name not in before and found[0] != NOBODY}
        wrote = not refusal and (bool(new) or not writer.leaves)
        return Case(f"{writer.name}; {situation.name}{f' ({refusal})' * bool(refusal)}", situation.honest, wrote, taken)


def _swapped(writer: Writer, times: int) -> Case:
    """Another process swaps the names meanwhile, in a folder where everybody may write."""
    with ground() as made:
        home = tree(made.home)
        with swapped(made, [name for name in writer.names if "/" not in name]):
            refused = sum(bool(_attempted(writer.write, made.folder)) for _ in range(max(1, times)))
        made.shared.chmod(0o700)
        taken = "" if tree(made.home) == home else "the victim's home has changed"
        return Case(f"{writer.name}; names are swapped", honest=False, wrote=refused < times, taken=taken)


def _given(writer: Writer, reads: Callable[[Path], bool]) -> Iterator[Case]:
    """What the writer has written itself is used again, and not any more where it is somebody else's."""
    for name, give in _GIFTS.items():
        with ground() as made:
            made.shared.chmod(0o700)
            _attempted(writer.write, made.shared)
            if give is not None:
                give(made)
            used = False
            with contextlib.suppress(*REFUSALS), _in_time():
                used = reads(made.folder)
            taken = f"{name} is used" if used and give is not None else ""
            yield Case(f"{writer.name}; read again: {name}", give is None, used, taken)


def _give_everything(made: Ground) -> None:
    for path in (made.shared, *made.shared.rglob("*")):
        os.lchown(path, NOBODY, NOBODY)


def _give_files(made: Ground) -> None:
    """The folder was everybody's, and is so still."""
    for path in made.shared.rglob("*"):
        os.lchown(path, NOBODY, NOBODY)
    made.shared.chmod(0o1777)


def _give_files_alone(made: Ground) -> None:
    """The folder is ours alone, and was not once."""
    for path in made.shared.rglob("*"):
        if not path.is_dir():
            os.lchown(path, NOBODY, NOBODY)


def _by_link(made: Ground) -> None:
    _give_everything(made)
    made.folder = made.root / "way"
    made.folder.symlink_to(made.shared)
    os.lchown(made.folder, NOBODY, NOBODY)


_GIFTS: dict[str, Callable[[Ground], None] | None] = {
    "own": None,
    "everything belongs to the other user": _give_everything,
    "files of the other user in everybody's folder": _give_files,
    "files of the other user in a folder of ours": _give_files_alone,
    "a folder of the other user behind his link": _by_link,
}


def _attempted(write: Callable[[Path], object], folder: Path) -> str:
    """Why it was not written; empty where nothing was refused."""
    try:
        with _in_time():
            write(folder)
    except REFUSALS as error:
        return type(error).__name__
    return ""


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Raises TimeoutError for a writer that waits for somebody else."""

    def late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(MAX_CASE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
