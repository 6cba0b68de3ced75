"""The text format of Prometheus, as far as an exporter of a node needs it: names, labels and values of samples.

The format is that of prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4. Comments, types and times of
samples are skipped. A line that is none of these is an error, because half of an answer would look like a healthy node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

MAX_SAMPLES = 50_000
"""Samples of one answer; an exporter of 16 GPUs has about 2,000."""
_SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)"  # name
    r"(?:\{((?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?"  # labels
    r"[ \t]+([^ \t]+)(?:[ \t]+-?\d+)?[ \t]*"  # value, time
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "\\": "\\", '"': '"'}


class PrometheusSample(NamedTuple):
    """One line of an exporter's answer."""

    name: str
    labels: Mapping[str, str]
    value: float


def samples(text: str, names: frozenset[str]) -> Iterator[PrometheusSample]:
    """The samples with one of these names. Raises ValueError that names the line for what is no sample, and for more
    than MAX_SAMPLES."""
    seen = 0
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if (seen := seen + 1) > MAX_SAMPLES:
            raise ValueError(f"line {number}: more than {MAX_SAMPLES} samples")
        if not (found := _SAMPLE.fullmatch(line)):
            raise ValueError(f"line {number}: {line[:60]!r} is not a sample")
        if found[1] in names:
            yield PrometheusSample(found[1], _labels(found[2] or "", number), _value(found[3], number))


def _labels(text: str, number: int) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(text):
        if not (found := _LABEL.match(text, at)):
            raise ValueError(f"line {number}: {text[at : at + 60]!r} is not a label")
        labels[found[1]] = _ESCAPED.sub(lambda one: _ESCAPES.get(one[1], one[0]), found[2])
        at = found.end()
    return labels


def _value(text: str, number: int) -> float:
    """Go's numbers, which Python reads as well: +Inf, NaN, 1e-07. Python's own 1_000 is none of them."""
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError(f"line {number}: {text[:40]!r} is not a number") from None
