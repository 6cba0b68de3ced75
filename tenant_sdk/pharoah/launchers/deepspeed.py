"""`deepspeed [options] script.py`: its arguments are parsed by DeepSpeed itself."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.capture.hardware import list_simulated_gpus
from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._options import before_program, value_of
from pharoah.launchers._program import Launch, Program, count_or_one

_NAME = "deepspeed"


def _launch(words: Sequence[str]) -> Launch:
    asked = value_of(before_program(words[1:]), "--num-gpus", "--num-accelerators")
    program, here = Program(tuple(words[1:]), _NAME), count_or_one(asked)
    return Launch(python_beside(words[0]), program, processes_here=here, one_per_gpu=not asked)


def _first_process(program: Program) -> Program:
    """The program that DeepSpeed starts as its first process. Raises UnknownReason."""
    file = value_of(before_program(program.arguments), "-H", "--hostfile")
    if file and not Path(file).is_file():  # DeepSpeed would go on with this machine alone
        raise UnknownReason(f"cannot dry-run `deepspeed`: there is no file {file}")
    try:
        from deepspeed.launcher import runner
    except ImportError as error:
        raise UnknownReason(f"cannot dry-run `deepspeed`: {error}") from None
    try:
        options = runner.parse_args(list(program.arguments))
        hosts = runner.fetch_hostfile(options.hostfile) or {}
    except (SystemExit, ValueError) as error:
        raise UnknownReason(f"cannot dry-run `deepspeed`: its arguments are wrong ({error})") from None
    if options.no_python:
        raise UnknownReason(f"cannot dry-run `{options.user_script}`: --no_python says that it is not Python")
    local_rank = [] if options.no_local_rank else ["--local_rank=0"]
    module = ["-m"] if options.module else []
    nodes, here = _ranks(options, hosts)
    return replace(
        program,
        arguments=(*module, options.user_script, *local_rank, *options.user_args),
        launcher="",
        nodes=program.nodes or nodes,
        processes=program.processes or here,
    )


def _ranks(options: Namespace, hosts: Mapping[str, int]) -> tuple[int, int]:
    """The number of nodes, and of processes on each of them. Raises UnknownReason."""
    filtered, counted = options.include or options.exclude, options.num_nodes > 0 or options.num_gpus > 0
    if filtered and counted:
        raise UnknownReason(
            "cannot dry-run `deepspeed`: give either --include or --exclude, or --num_nodes and --num_gpus, not both"
        )
    used = _select_slots(hosts or {"localhost": max(1, len(list_simulated_gpus()))}, options.include, options.exclude)
    nodes, slots = len(used), list(used.values())
    if options.num_nodes > 0:
        # Without a hostfile the other nodes are those of another machine's hostfile.
        nodes = min(nodes, options.num_nodes) if hosts else options.num_nodes
    # Where nodes have different numbers of slots, all are taken for the largest.
    return nodes, options.num_gpus if options.num_gpus > 0 else max(slots[:nodes])


def _select_slots(slots: Mapping[str, int], include: str, exclude: str) -> dict[str, int]:
    """The nodes that a job uses, with how many of their slots (`deepspeed --help`). Raises UnknownReason."""
    if include and exclude:
        raise UnknownReason("cannot dry-run `deepspeed`: give either --include or --exclude, not both")
    option, named = "--include" if include else "--exclude", _parse_slots(include or exclude)
    if unknown := named.keys() - slots.keys():
        name = min(unknown)
        raise UnknownReason(
            f"cannot dry-run `deepspeed`: {option} names {name}, which is not a node; give --hostfile a file with it"
        )
    used = dict[str, int]()
    for node, count in slots.items():
        every = set(range(count))
        chosen = (named[node] or every) if node in named else set[int]()
        if size := len(chosen if include else every - chosen):
            used[node] = size
    if not used:
        raise UnknownReason(f"cannot dry-run `deepspeed`: {option} leaves no slot; name fewer of them")
    return used


def _parse_slots(text: str) -> dict[str, set[int]]:
    """Nodes to the slots that are named of them, none for all: `NODE[:SLOT,SLOT][@NODE...]`. Raises UnknownReason."""
    found = dict[str, set[int]]()
    for part in filter(None, text.split("@")):
        node, _, listed = part.partition(":")
        slots = listed.split(",") if listed else []
        if not all(slot.isdecimal() for slot in slots):
            raise UnknownReason(f"cannot dry-run `deepspeed`: {part}: write NODE, or NODE:SLOT,SLOT with numbers")
        found.setdefault(node, set()).update(map(int, slots))
    return found


DEEPSPEED = Launcher(
    _NAME,
    "a script on every GPU, by DeepSpeed",
    (_NAME, "ds", "deepspeed.pt"),
    _launch,
    ("deepspeed.launcher.runner",),
    _first_process,
)
