"""`pharoah-provider archetypes mine DIR`: what production traces are made of, and drafts for the catalogue."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pharoah_archetypes import describe_sent
from pharoah_provider.traces import Trace, TraceError, read_traces
from pharoah_provider.traces.files import ARCHIVE_ENDINGS, TRACE_ENDINGS
from pharoah_provider.traces.mining import Candidate, mine
from pharoah_serving.errors import ProviderError
from pharoah_system.files import make_output_folder, write_output
from pharoah_system.standard_streams import say, show

_ENDINGS = (*TRACE_ENDINGS, *ARCHIVE_ENDINGS)
_DRAWN = 12
_DRAFT = '''# A draft from {count} traces. Name it, say why it behaves so, move it to the catalogue: docs/archetypes.md.
id = "{id}"
title = ""
mechanism = """
"""
grammar = """
{grammar}
"""
variants = []
references = []
'''


def add_parser(commands: Any) -> None:
    """Add this command."""
    parser = commands.add_parser("archetypes", help="archetypes of traces")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    miner = actions.add_parser("mine", help="find archetypes in a folder of traces (Kineto, execution traces, Chakra)")
    miner.add_argument("folder", type=Path, metavar="DIR")
    miner.add_argument(
        "--out", type=Path, metavar="DIR", help="leave drafts for the catalogue and a picture here; it needs matplotlib"
    )
    miner.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when every trace could be read, 1 when some could not. Raises ProviderError when there is none."""
    if arguments.out:
        _check_drawing()
    unread: list[TraceError] = []
    traces = list(_traces(arguments.folder, unread))
    if not traces and not unread:
        raise ProviderError(f"{arguments.folder}: no file that ends in {', '.join(_ENDINGS)}")
    candidates = mine(traces)
    without = [trace for trace in traces if trace.skeleton is None]
    show(f"{len(traces)} traces, {len(candidates)} archetypes, {len(without)} without structure, {len(unread)} unread")
    for candidate in candidates:
        _show(candidate)
    for error in unread:
        say(f"pharoah-provider: {error}")
    if arguments.out:
        _write(arguments.out, candidates)
    return 1 if unread else 0


def _check_drawing() -> None:
    """Raises ProviderError when matplotlib is missing: a folder without its picture would look complete."""
    from pharoah import PharoahError
    from pharoah.skeleton_picture import check_that_it_can_be_drawn

    try:
        check_that_it_can_be_drawn()
    except PharoahError as error:
        raise ProviderError(str(error)) from None


def _traces(folder: Path, unread: list[TraceError]) -> Iterator[Trace]:
    for path in sorted(folder.rglob("*")):
        if path.name.endswith(_ENDINGS) and path.is_file():
            try:
                yield from read_traces(path, unread)
            except TraceError as error:
                unread.append(error)
            except OSError as error:
                unread.append(TraceError(path.name, 0, str(error.strerror)))


def _show(candidate: Candidate) -> None:
    kinds = Counter(str(trace.kind) for trace in candidate.traces)
    closest = candidate.closest.id
    show(f"\n{candidate.skeleton.archetype[:12]}  family {candidate.family}, {_count(kinds)}")
    show(f"  {f'is {closest}' if candidate.is_known else f'near {closest} ({candidate.likeness:.2f})'}", end="")
    show(f"; sends {describe_sent(candidate.skeleton)}" if describe_sent(candidate.skeleton) else "")
    for line in candidate.skeleton.text.splitlines():
        show(f"  {line}")
    if candidate.skeleton.unknown:
        show(f"  unknown operators: {', '.join(candidate.skeleton.unknown)}")
    sources = [trace.source for trace in candidate.traces]
    show(f"  from {', '.join(sources[:3])}{f' and {len(sources) - 3} more' if len(sources) > 3 else ''}")


def _count(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind} trace{'s' * (count > 1)}" for kind, count in kinds.items())


def _write(folder: Path, candidates: list[Candidate]) -> None:
    """Raises ProviderError when the folder cannot be written, or matplotlib is missing."""
    from pharoah import PharoahError
    from pharoah.skeleton_picture import TitledSkeleton, draw_all

    drafts = [candidate for candidate in candidates if not candidate.is_known]
    try:
        make_output_folder(folder)
        for candidate in drafts:
            name = f"mined_{candidate.skeleton.archetype[:12]}"
            text = _DRAFT.format(id=name, count=len(candidate.traces), grammar=candidate.skeleton.text)
            write_output(folder / f"{name}.toml", text)
        drawn = [TitledSkeleton(title=_title(one), skeleton=one.skeleton) for one in candidates[:_DRAWN]]
        draw_all(folder / "candidates.svg", drawn)
    except OSError as error:
        raise ProviderError(f"{folder}: {error.strerror}") from None
    except PharoahError as error:
        raise ProviderError(str(error)) from None
    show(f"\n{len(drafts)} drafts and candidates.svg in {folder}")


def _title(candidate: Candidate) -> str:
    return f"{candidate.skeleton.archetype[:12]} ({len(candidate.traces)} traces, near {candidate.closest.id})"
