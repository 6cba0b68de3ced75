"""What a caller has sent is read in reading processes: nothing that the event loop runs decodes it there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from pharoah_provider.services.readers import READERS

PROVIDER = Path(__file__).parents[2] / "provider_service" / "pharoah_provider"
SERVICES = PROVIDER / "services"
CALLED_BY_SERVICES = (
    "agent_budgets.py", "agent_connection.py", "audit_bundle.py", "campaigns/executors/agents.py", "exchange_server.py",
    "fleet.py", "monitoring/guest_orders.py", "monitoring/guest_results.py", "monitoring/intake.py",
    "node_actions.py", "ticket_check.py",
)  # fmt: skip
"""Modules beside the services that are handed what callers have sent."""
READING = {
    "json": {"load", "loads"},
    "tomllib": {"load", "loads"},
    "pickle": {"load", "loads"},
    "yaml": {"load", "safe_load"},
    "": {
        "check_inputs", "count_rows", "from_json", "from_text", "parse", "parse_plan", "read_answer", "read_cell",
        "read_fingerprint", "read_long_answer", "read_result", "read_samples", "read_sequence", "read_table",
        "rung_tokens", "sequence_name",
    },
}  # fmt: skip
"""Calls whose time grows with a text, by the name before the dot; those of the last set have any name there."""
MAY_READ = {
    ("services/operator.py", "loads"): "the profile as a reading process has written it, of at most 16 KiB",
    ("node_actions.py", "loads"): "workload and settings of the provider's own cells",
    ("monitoring/guest_orders.py", "read_result"): "1,024 bytes of fields of known lengths",
}


def reading_calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id=before), attr=name) if name in READING.get(before, ()):
                yield name
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in READING[""]:
                yield name


def in_event_loop() -> list[Path]:
    services = [path for path in SERVICES.rglob("*.py") if "readers" not in path.relative_to(SERVICES).parts]
    return [*services, *(PROVIDER / name for name in CALLED_BY_SERVICES)]


@pytest.mark.parametrize("path", in_event_loop(), ids=lambda path: str(path.relative_to(PROVIDER)))
def test_services_read_nothing_that_a_caller_has_sent(path: Path) -> None:
    inside = str(path.relative_to(PROVIDER))
    found = {name for name in reading_calls(path) if (inside, name) not in MAY_READ}
    assert not found, f"{path} calls {found}; put a function into pharoah_provider.services.readers"


def test_every_reader_is_where_the_table_says() -> None:
    for name, place in READERS.items():
        module, _, function = place.partition(":")
        assert callable(getattr(import_module(module), function)), name
