"""Baselines: one JSON object from the name of a metric to the value of a healthy node (`baseline.json`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pharoah_provider.superbench.results import LINE_LIMITS, Number, SuperBenchError, check_metric, text_of
from pharoah_system.bounded_reading import UnreadableInput, parse_json

Baseline = Mapping[str, Number]


def read_baseline(path: Path) -> Baseline:
    """Metric to value. Raises SuperBenchError that names the metric, and OSError."""
    try:
        data = parse_json(text_of(path), path, LINE_LIMITS)
        if not isinstance(data, dict):
            raise ValueError("expected one JSON object of metrics")
        for name, value in data.items():
            check_metric(name, value)
    except SuperBenchError:
        raise
    except UnreadableInput as error:
        raise SuperBenchError(str(error)) from None
    except ValueError as error:
        raise SuperBenchError(f"{path}: {error}") from None
    return data


def baseline_text(baseline: Baseline) -> str:
    """The content of a file of baselines."""
    return json.dumps(baseline, indent=2, allow_nan=False) + "\n"
