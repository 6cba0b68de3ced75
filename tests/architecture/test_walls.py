"""The walls nobody else keeps: who may import whom, what an import costs, which names are public."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pharoah
from pharoah._settings import VARIABLES

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "pharoah_system": ROOT / "proto",
    "pharoah_archetypes": ROOT / "archetypes",
    "pharoah_protocol": ROOT / "proto",
    "pharoah_serving": ROOT / "proto",
    "pharoah": ROOT / "tenant_sdk",
    "pharoah_benchmarks": ROOT / "benchmarks",
    "pharoah_learning": ROOT / "provider_service",
    "pharoah_provider": ROOT / "provider_service",
    "pharoah_auditor": ROOT / "auditor",
}
MAY_IMPORT = {
    "pharoah_system": set(),
    "pharoah_archetypes": {"pharoah_system"},
    "pharoah_protocol": {"pharoah_system", "pharoah_archetypes"},
    "pharoah_serving": {"pharoah_system", "pharoah_archetypes", "pharoah_protocol"},
    "pharoah": {"pharoah_system", "pharoah_archetypes", "pharoah_protocol"},
    "pharoah_benchmarks": {"pharoah", "pharoah_system", "pharoah_archetypes", "pharoah_protocol"},
    "pharoah_learning": {"pharoah_system", "pharoah_archetypes", "pharoah_protocol"},
    "pharoah_provider": FOLDERS.keys() - {"pharoah_auditor"},
    "pharoah_auditor": {
        "pharoah_system",
        "pharoah_archetypes",
        "pharoah_protocol",
        "pharoah_serving",
        "pharoah_learning",
    },
}


def modules(package: str) -> list[Path]:
    return sorted((FOLDERS[package] / package).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


@pytest.mark.parametrize("package", FOLDERS)
def test_arrows_point_one_way(package: str) -> None:
    for path in modules(package):
        foreign = {name.partition(".")[0] for name in imports(path)} & (FOLDERS.keys() - {package})
        assert foreign <= MAY_IMPORT[package], f"{path} imports {foreign}"


@pytest.mark.parametrize("package", ["pharoah_system", "pharoah_archetypes"])
def test_the_lowest_packages_need_the_standard_library_only(package: str) -> None:
    for path in modules(package):
        tops = {name.partition(".")[0] for name in imports(path)} - {"pharoah_system", package}
        if path.name == "_yaml.py":  # it imports PyYAML, which is no dependency, when it reads YAML
            tops -= {"yaml"}
        assert tops <= set(sys.stdlib_module_names), path


@pytest.mark.parametrize(
    ("what", "package", "allowed"),
    [
        ("grpc", "pharoah_protocol", ("channels.py", "rpc.py")),
        ("google.protobuf", "pharoah_protocol", ("rpc.py", "v1")),
        ("grpc", "pharoah", ("sidecar", "cli/doctor.py")),
        ("pharoah_protocol.v1", "pharoah", ("sidecar",)),
        ("torch", "pharoah", ("capture", "dryrun", "launchers", "replay", "torch_names.py")),
        ("torch", "pharoah_protocol", ()),
        ("torch", "pharoah_serving", ()),
        ("torch", "pharoah_learning", ()),
        ("duckdb", "pharoah_learning", ()),
        ("grpc", "pharoah_learning", ()),
        ("grpc", "pharoah_provider", ("services", "cli/_calls.py", "agent/stream.py", "channel.py")),
        ("grpc", "pharoah_auditor", ()),
        ("pharoah_protocol.v1", "pharoah_provider", ("services", "cli", "agent/stream.py")),
        ("duckdb", "pharoah_provider", ("storage/duckdb",)),
        ("torch", "pharoah_provider", ()),
        ("ray", "pharoah_provider", ("campaigns/ray_driver.py", "campaigns/ray_worker.py")),
        ("duckdb", "pharoah_auditor", ()),
    ],
)
def test_heavy_and_foreign_things_stay_in_their_rooms(what: str, package: str, allowed: tuple[str, ...]) -> None:
    for path in modules(package):
        inside = str(path.relative_to(FOLDERS[package] / package))
        if not inside.startswith(allowed):
            found = [name for name in imports(path) if name == what or name.startswith(f"{what}.")]
            assert not found, f"{path} imports {found}"


def test_sql_stops_at_the_store() -> None:
    for path in modules("pharoah_provider"):
        if not {"storage", "listings"} & set(path.parts):
            text = path.read_text()
            assert "SELECT " not in text and "INSERT INTO" not in text, path


def test_models_are_pure() -> None:
    for path in (FOLDERS["pharoah_learning"] / "pharoah_learning" / "models").glob("*.py"):
        others = {name for name in imports(path) if not name.startswith("pharoah_learning.models.")}
        tops = {name.partition(".")[0] for name in others}
        allowed = {
            "__future__",
            "collections",
            "dataclasses",
            "functools",
            "itertools",
            "math",
            "numpy",
            "scipy",
            "statistics",
            "typing",
        }
        assert tops <= allowed, path


def test_public_names() -> None:
    assert pharoah.__all__ == [
        "Alert",
        "Finding",
        "IncompatibleError",
        "PharoahError",
        "Session",
        "SettingsError",
        "Verdict",
        "register",
    ]


def test_importing_the_sdk_brings_no_thread_no_socket_no_grpc_no_torch() -> None:
    code = """
import os, sys, threading
before = set(os.listdir("/proc/self/fd"))
import pharoah
heavy = {"grpc", "torch", "google.protobuf", "cryptography", "numpy"} & set(sys.modules)
assert not heavy, heavy
assert threading.active_count() == 1
assert set(os.listdir("/proc/self/fd")) == before
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_agent_never_imports_torch() -> None:
    code = "import sys, pharoah_provider.agent.cli; assert 'torch' not in sys.modules and 'duckdb' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("pharoah",),
        ("pharoah", "run"),
        ("pharoah", "check"),
        ("pharoah", "explain"),
        ("pharoah", "status"),
        ("pharoah", "doctor"),
        ("pharoah", "audit"),
        ("pharoah_provider.cli",),
        ("pharoah_auditor.cli",),
        ("pharoah_auditor.cli", "witness"),
        ("pharoah_provider.cli", "serve"),
        ("pharoah_provider.cli", "archetypes", "mine"),
        ("pharoah_provider.agent.cli", "run"),
        ("evaluation",),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself_in_80_columns(command: tuple[str, ...]) -> None:
    module, *rest = command
    environ = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        [sys.executable, "-m", module, *rest, "--help"], capture_output=True, text=True, env=environ, cwd=ROOT
    )
    assert done.returncode == 0 and "usage:" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 84


def test_every_variable_is_documented() -> None:
    text = (ROOT / "docs" / "tenant" / "settings.md").read_text()
    assert all(variable in text for variable in VARIABLES.values())


def test_generated_descriptors_are_those_of_the_schema(tmp_path: Path) -> None:
    from grpc_tools import protoc

    files = sorted(
        str(path.relative_to(ROOT / "proto" / "schema"))
        for path in (ROOT / "proto" / "schema").glob("pharoah/v1/*.proto")
    )
    target = tmp_path / "d.binpb"
    assert protoc.main(["protoc", f"-I{ROOT / 'proto' / 'schema'}", f"--descriptor_set_out={target}", *files]) == 0
    shipped = FOLDERS["pharoah_protocol"] / "pharoah_protocol" / "v1" / "descriptors.binpb"
    assert target.read_bytes() == shipped.read_bytes(), "run `make protos`"
