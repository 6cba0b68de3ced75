"""Failed jobs' logs whose cause was decided by hand, and who caused the failures by the rules.

The logs are in `attribution_logs`: the words of real tools, written for this evaluation, each with who caused the
failure and a sentence why. That nobody can know it is one of the answers. The rules were mended with `looked_at`.
`held_out` was written before they were mended, and `unseen` when they were finished; nothing was mended with these two.
Beside the rules stand a table of keywords, and the commonest answer for all.
"""

from __future__ import annotations

import argparse
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from evaluation.figures import Figures
from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import Attribution, EndState

FOLDER = Path(__file__).parent / "attribution_logs"
FILES = ("looked_at", "held_out", "unseen")
MIN_RIGHT = 0.97
"""The least share of logs about which rules and hand agree."""
KEYWORDS = {
    "No such file": Attribution.USER,
    "out of memory": Attribution.UNKNOWN,
    "timeout": Attribution.UNKNOWN,
    "NVRM": Attribution.NODE,
    "ECC": Attribution.NODE,
    "Input/output error": Attribution.NODE,
    "No space left": Attribution.PLATFORM,
    "NCCL": Attribution.FABRIC,
    "undefined symbol": Attribution.SOFTWARE,
    "Error": Attribution.USER,
    "error": Attribution.USER,
}
"""The table of a simpler method: the first word that is in the last line with any of them."""


class Log(NamedTuple):
    """The end of one log."""

    file: str
    lines: list[str]
    attribution: Attribution
    why: str


def measure(figures: Figures, _: argparse.Namespace) -> None:
    """How many logs get the attribution that a hand gave them."""
    logs = read_logs()
    found = [rules().cause(EndState.FAILED, log.lines) for log in logs]
    right = [cause.attribution is log.attribution for log, cause in zip(logs, found, strict=True)]
    figures.ratio("attribution_by_hand_ratio", sum(right), len(logs), MIN_RIGHT)
    for file in FILES:
        chosen = [correct for log, correct in zip(logs, right, strict=True) if log.file == file]
        figures.ratio(f"attribution_by_hand_{file}_ratio", sum(chosen), len(chosen))
    keywords = sum(keyword_attribution(log.lines) is log.attribution for log in logs)
    figures.ratio("attribution_by_hand_keywords_ratio", keywords, len(logs))
    most = Counter(log.attribution for log in logs).most_common(1)[0][1]
    figures.ratio("attribution_by_hand_commonest_ratio", most, len(logs))
    blamed = sum(
        log.attribution in (Attribution.USER, Attribution.UNKNOWN)
        and cause.attribution in (Attribution.NODE, Attribution.FABRIC, Attribution.PLATFORM)
        for log, cause in zip(logs, found, strict=True)
    )
    figures.add("attribution_provider_blamed_wrongly", blamed)
    figures.details["attributions that differ"] = [
        {"file": log.file, "by hand": log.attribution, "rules": cause.attribution, "rule": cause.rule,
         "lines": log.lines, "why": log.why}
        for log, cause, correct in zip(logs, found, right, strict=True) if not correct
    ]  # fmt: skip
    figures.table(
        "Logs by who caused the failure, as a hand decided it.",
        ["attribution", "logs", "rules agree"],
        [
            [attribution, str(len(of)), str(sum(of))]
            for attribution in Attribution
            if (of := [ok for log, ok in zip(logs, right, strict=True) if log.attribution is attribution])
        ],
    )


def read_logs() -> list[Log]:
    """The logs of all files."""
    return [
        Log(file, entry["lines"].strip("\n").split("\n"), Attribution(entry["attribution"]), entry["why"])
        for file in FILES
        for entry in tomllib.loads((FOLDER / f"{file}.toml").read_text(encoding="utf-8"))["log"]
    ]


def keyword_attribution(lines: list[str]) -> Attribution:
    """What the table of keywords makes of a log."""
    for line in reversed(lines):
        for word, attribution in KEYWORDS.items():
            if word in line:
                return attribution
    return Attribution.UNKNOWN
