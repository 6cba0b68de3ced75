"""`pharoah documented [NAME=VERSION ...]`: what vendors document about software and hardware that go together, or not.

Names are those of packages, and `python`, `cuda`, `driver`, `gpu` (such as `H100`), `capability`, `machine`, `glibc`.
Without any, the question is about this machine and what is installed here. With some and without `machine` it is about
builds for x86_64.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from typing import Any

from pharoah._errors import SettingsError
from pharoah.cli._output import show
from pharoah.documented import capability_of_gpu, complete, find_installed_facts
from pharoah_archetypes.documented import Answer, Compatibility, documents

_DERIVED_FROM = {"gpu", "architectures", "machine", "forward_compatibility"}
"""Names that no relation is about, and that others follow from."""
_USUAL_MACHINE = "x86_64"
"""The processor of what is asked by hand. Builds for aarch64 have other device code."""
_MARKS = {Compatibility.COMPATIBLE: "yes", Compatibility.INCOMPATIBLE: "NO", Compatibility.UNKNOWN: "?"}


def add_parser(commands: Any) -> None:
    """Add the sub-command to the command line."""
    parser = commands.add_parser(
        "documented",
        help="which versions and GPUs go together, as vendors document it",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("facts", nargs="*", metavar="NAME=VERSION", help="such as torch=2.6.0+cu124 driver=470.82.01")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command; gives the exit code: 1 when something does not go together."""
    facts = (
        complete({"machine": _USUAL_MACHINE, **_parse_given(arguments.facts)})
        if arguments.facts
        else find_installed_facts()
    )
    answers = list(documents().answers(facts))
    if arguments.output == "json":
        show(json.dumps([_plain(answer) for answer in answers], indent=2))
    else:
        for answer in answers:
            show("\n".join(lines(answer)))
        if not answers:
            show("no document that Pharoah has is about these facts together")
    return int(any(answer.compatibility is Compatibility.INCOMPATIBLE for answer in answers))


def lines(answer: Answer) -> list[str]:
    """One answer for a terminal of 80 columns."""
    return [
        *_wrap(answer.question, f"{_MARKS[answer.compatibility]:4} "),
        *_wrap(answer.why, "     "),
        *_wrap(answer.remedy, "     remedy  "),
        *_wrap(answer.source, "     source  "),
    ]


def _parse_given(texts: list[str]) -> dict[str, str]:
    """Raises SettingsError for what is not NAME=VERSION, or a name or a GPU that no document is about."""
    known = documents().names | _DERIVED_FROM
    given: dict[str, str] = {}
    for text in texts:
        name, separator, value = text.replace("==", "=").partition("=")
        if not separator or not value:
            raise SettingsError(f"{text}: write NAME=VERSION, such as torch=2.6.0+cu124")
        if name not in known:
            raise SettingsError(
                f"{name}: no document that Pharoah has is about it; there are {', '.join(sorted(known))}"
            )
        if name == "gpu" and not capability_of_gpu(value):
            raise SettingsError(f"{text}: this GPU is not known; give its compute capability, such as capability=9.0")
        if name in given:
            raise SettingsError(f"{name}: given twice, as {given[name]} and {value}")
        given[name] = value
    return given


def _plain(answer: Answer) -> dict[str, str]:
    return {
        "relation": answer.relation.name,
        "question": answer.question,
        "answer": answer.compatibility,
        "why": answer.why,
        "remedy": answer.remedy,
        "source": answer.source,
    }


def _wrap(text: str, first: str) -> list[str]:
    return textwrap.wrap(text, 80, initial_indent=first, subsequent_indent=" " * len(first))
