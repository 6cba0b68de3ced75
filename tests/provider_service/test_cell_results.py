"""Results of cells: what an order allows, and how they come back from a reading process."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from pharoah_benchmarks.campaign.cell import Cell, CellResult, Degradation, NotBuilt
from pharoah_protocol.bounds import MAX_DURATIONS, MAX_WINDOWS
from pharoah_protocol.telemetry_samples import MAX_SAMPLES, TelemetrySample
from pharoah_protocol.vocabulary import DeviceKind, Outcome
from pharoah_protocol.windows import Window
from pharoah_provider.cell_results import (
    MAX_RESULT_BYTES,
    REST_BYTES,
    AnswerBounds,
    CheckedResult,
    from_parts,
    parts_of,
)
from pharoah_provider.services.readers.cells import read_cell

PLAIN = Cell("plain", "gpt", {})
TIMED = replace(PLAIN, seconds=18.0)
DEGRADED = replace(TIMED, degradation=Degradation())
LONGEST = replace(DEGRADED, seconds=1_000.0, limit_seconds=86_400.0)
WINDOW, SAMPLE = Window(at_seconds=1.0, values={"s": 1.5}), TelemetrySample(at_seconds=-1.0, values={"s": 2.5})
RESULT = CellResult(
    cell="plain", outcome=Outcome.ERROR, detail="why", step_seconds=[0.1, 1e-9], losses=[1.0], windows=[WINDOW],
    telemetry=[SAMPLE], began_at=7.0, context={"threads": 1}, device=DeviceKind.CUDA, device_model="H100",
)  # fmt: skip


def test_bounds_follow_from_the_order() -> None:
    assert AnswerBounds.from_cell(PLAIN) == AnswerBounds(steps=6, windows=0, samples=0)
    assert AnswerBounds.from_cell(TIMED).steps == MAX_DURATIONS and AnswerBounds.from_cell(TIMED).windows == 0
    # A limit of 60 s lasts 600 s on a busy machine, and 20 s to end it; a window is half a second.
    assert AnswerBounds.from_cell(DEGRADED).windows == 1240 and AnswerBounds.from_cell(DEGRADED).samples == MAX_SAMPLES
    assert AnswerBounds.from_cell(LONGEST) == AnswerBounds(
        steps=MAX_DURATIONS, windows=MAX_WINDOWS, samples=MAX_SAMPLES
    )
    assert AnswerBounds.from_cell(LONGEST).result_bytes == MAX_RESULT_BYTES
    assert AnswerBounds.from_cell(PLAIN).result_bytes < MAX_RESULT_BYTES // 6


@pytest.mark.parametrize(
    ("cell", "changes", "message"),
    [
        (PLAIN, {"windows": [WINDOW], "telemetry": []}, "windows: 1 values, .* at most 0"),
        (PLAIN, {"windows": []}, "telemetry: 1 values, .* at most 0"),
        (PLAIN, {"windows": [], "telemetry": [], "step_seconds": [0.1] * 7}, "step_seconds: 7 values"),
        (DEGRADED, {"windows": [WINDOW] * 1241}, "windows: 1241 values, .* at most 1240"),
    ],
)
def test_what_the_order_does_not_allow_is_refused(cell: Cell, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_cell(cell.to_json().encode(), replace(RESULT, **changes).to_json().encode())  # type: ignore[arg-type]


def test_a_text_that_is_longer_than_the_order_allows_is_not_read() -> None:
    with pytest.raises(ValueError, match=r"bytes, at most \d+ for the cell"):
        read_cell(PLAIN.to_json().encode(), b"[" * (AnswerBounds.from_cell(PLAIN).result_bytes + 1))


def test_a_result_comes_back_as_it_was_with_its_long_columns_as_texts() -> None:
    head, *columns = parts_of(RESULT)
    assert len(head) < REST_BYTES and len(columns) == 4
    read = from_parts([head, *columns])
    assert isinstance(read, CheckedResult)
    assert json.loads(read.windows_json) == [asdict(WINDOW)] and json.loads(read.telemetry_json) == [asdict(SAMPLE)]
    fields = {name: getattr(read, name) for name in asdict(RESULT)} | {"windows": [WINDOW], "telemetry": [SAMPLE]}
    assert CellResult(**fields) == RESULT
    missing = NotBuilt("plain", "no index", may_be_tried_again=True)
    assert from_parts(parts_of(missing)) == missing
