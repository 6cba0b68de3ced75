"""The campaign files that docstrings and documents show can be planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pharoah_benchmarks.campaign import plan
from pharoah_benchmarks.campaign.plan import parse_plan

PROVIDER = Path(__file__).parents[2] / "docs" / "provider" / "campaigns.md"


def in_documents() -> list[str]:
    """The blocks of docs/provider/campaigns.md that are campaign files: those with a workload."""
    blocks = re.findall(r"```toml\n(.*?)```", PROVIDER.read_text(), re.DOTALL)
    return [block for block in blocks if "[[workload]]" in block]


def test_a_document_shows_a_campaign_file() -> None:
    assert in_documents()


@pytest.mark.parametrize("text", [(plan.__doc__ or "").partition("\n")[2], *in_documents()])
def test_a_campaign_file_that_is_shown_can_be_planned(text: str) -> None:
    written_out = text.replace("sha256:...", f"sha256:{0:064x}")  # a hash does not fit into a line
    assert any(cell.environment for cell in parse_plan(written_out).cells)
