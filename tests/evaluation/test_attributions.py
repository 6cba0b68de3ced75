"""Logs whose cause was decided by hand, and what the rules make of them."""

from __future__ import annotations

import argparse
from collections import Counter

from evaluation.figures import Figures
from evaluation.learning.attributions import FILES, keyword_attribution, measure, read_logs
from pharoah_protocol.vocabulary import Attribution


def test_every_log_is_there_once_with_a_sentence_why() -> None:
    logs = read_logs()
    assert len({"\n".join(log.lines) for log in logs}) == len(logs)
    assert all(log.why.endswith(".") and log.lines[0] and log.lines[-1] for log in logs)
    files = Counter(log.file for log in logs)
    assert set(files) == set(FILES) and min(files.values()) >= 50 and len(logs) >= 90


def test_unknown_is_one_of_the_answers() -> None:
    found = Counter(log.attribution for log in read_logs())
    assert found[Attribution.UNKNOWN] >= 50
    assert {Attribution.USER, Attribution.SOFTWARE, Attribution.NODE, Attribution.FABRIC, Attribution.PLATFORM} <= set(
        found
    )


def test_the_rules_agree_with_the_hand_and_beat_the_keywords() -> None:
    figures = Figures("attributions")
    measure(figures, argparse.Namespace())
    values = figures.values
    assert values["attribution_by_hand_ratio"] >= 0.97
    assert values["attribution_by_hand_keywords_ratio"] < 0.8
    assert values["attribution_provider_blamed_wrongly"] == 0


def test_keywords_look_at_the_last_line_that_says_something() -> None:
    assert keyword_attribution(["KeyError: 'x'", "NVRM: Xid 79", "done"]) is Attribution.NODE
    assert keyword_attribution(["step 3"]) is Attribution.UNKNOWN
