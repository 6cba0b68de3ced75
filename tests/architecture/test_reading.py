"""What others have written is read by one bounded reader, and no name in it becomes an attribute or a module.

Each table lists every place that does otherwise, how often it does, and why what it reads or names is our own. A new
place fails the test: use `pharoah_system.bounded_reading`, or a table of what may be named.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.architecture.test_walls import FOLDERS, modules

CHILD, PACKAGE, STORED, OURS, FIELDS = (
    "this process, or the one that it is a child of, has written it",
    "data of this package",
    "rows of our own database, which were read with bounds when they came",
    "it is what the reader is made of",
    "names of fields that stand in the same module or class",
)
STATIC = "a list of names in the same module"

PARSERS = {
    "pharoah_system/bounded_reading/_json.py": (2, OURS),
    "pharoah_system/bounded_reading/_toml.py": (1, OURS),
    "pharoah_system/bounded_reading/_yaml.py": (1, OURS),
    "pharoah_system/bounded_reading/_archives.py": (6, OURS),
    "pharoah_protocol/attribution/__init__.py": (1, PACKAGE),
    "pharoah_protocol/node_profile.py": (1, CHILD),
    "pharoah_archetypes/catalogue.py": (1, PACKAGE),
    "pharoah_archetypes/devices.py": (1, PACKAGE),
    "pharoah_archetypes/documented/gpus.py": (1, PACKAGE),
    "pharoah_archetypes/documented/relations.py": (1, PACKAGE),
    "pharoah_archetypes/effects.py": (1, PACKAGE),
    "pharoah_archetypes/inventory.py": (1, PACKAGE),
    "pharoah_archetypes/kinds.py": (1, PACKAGE),
    "pharoah_archetypes/remedies.py": (1, PACKAGE),
    "pharoah_archetypes/vocabulary.py": (1, PACKAGE),
    "pharoah/capture/flight_recorder.py": (1, "torch has written it, in this process"),
    "pharoah/cli/status.py": (1, "this process has just written it"),
    "pharoah/cost/mitigation.py": (1, CHILD),
    "pharoah/dryrun/checkpoints.py": (3, "the user's script reads its own checkpoint, by the user's own call"),
    "pharoah/dryrun/pipeline_stages.py": (1, "a child of the same dry run, inside the same sandbox"),
    "pharoah/dryrun/sandbox_mode.py": (1, CHILD),
    "pharoah/dryrun/shell_commands.py": (1, CHILD),
    "pharoah/launchers/_program.py": (1, CHILD),
    "pharoah/replay/step_file.py": (1, "it writes an archive; `ZipReader` reads it"),
    "pharoah/sidecar/__main__.py": (1, CHILD),
    "pharoah_learning/release.py": (1, STORED),
    "pharoah_provider/agent/child_processes.py": (1, CHILD),
    "pharoah_provider/agent/exporter_source.py": (1, PACKAGE),
    "pharoah_provider/campaigns/executor_settings.py": (1, STORED),
    "pharoah_provider/cell_results.py": (1, CHILD),
    "pharoah_provider/portable_tables.py": (1, CHILD),
    "pharoah_provider/services/operator.py": (1, CHILD),
    "pharoah_provider/services/readers/cells.py": (1, CHILD),
    "pharoah_provider/campaigns/ray_driver.py": (1, CHILD),
    "pharoah_provider/campaigns/suspect_pairs.py": (1, STORED),
    "pharoah_provider/node_actions.py": (1, STORED),
    "pharoah_provider/storage/duckdb/campaigns.py": (1, STORED),
    "pharoah_provider/storage/duckdb/evidence.py": (4, STORED),
    "pharoah_provider/storage/duckdb/published.py": (1, STORED),
    "pharoah_provider/superbench/rules.py": (1, "this process has just written it, to see whether JSON keeps it"),
    "pharoah_provider/traces/files.py": (1, "it reads a trace piece by piece, and bounds each piece itself"),
    "pharoah_benchmarks/environments/build.py": (1, CHILD),
    "pharoah_benchmarks/environments/resolve.py": (2, "the report of pip, a child, and a wheel that is written"),
    "pharoah_benchmarks/faults/_beside.py": (2, CHILD),
}
"""Places that parse without the reader."""

PATTERNS = {
    "pharoah_system/bounded_reading/_patterns.py": (1, OURS),
    "pharoah_system/files/_atomic.py": (1, "the name of the file that is written, escaped"),
    "pharoah_protocol/answer_digests.py": (1, STATIC),
    "pharoah_protocol/attribution/__init__.py": (1, PACKAGE),
    "pharoah_protocol/guest_probes.py": (1, STATIC),
    "pharoah_serving/identity.py": (1, STATIC),
    "pharoah_archetypes/devices.py": (1, PACKAGE),
    "pharoah_archetypes/documented/gpus.py": (1, PACKAGE),
    "pharoah_learning/limits.py": (1, STATIC),
    "pharoah_learning/usable_evidence.py": (1, STATIC),
    "pharoah_provider/cli/certificate.py": (1, STATIC),
    "pharoah_benchmarks/environments/lock.py": (1, STATIC),
    "pharoah_benchmarks/environments/store.py": (1, STATIC),
}
"""Places that compile a regular expression which is no literal."""

NAMES = {
    "pharoah/__init__.py": (2, STATIC),
    "pharoah/_inject/sitecustomize.py": (2, "the module of its own name that comes next on the path"),
    "pharoah/_rank_identity.py": (1, STATIC),
    "pharoah/_settings.py": (2, FIELDS),
    "pharoah/cli/_common.py": (1, FIELDS),
    "pharoah/cli/_job_process.py": (1, STATIC),
    "pharoah/cli/reveal.py": (2, STATIC),
    "pharoah/comparison/history.py": (2, FIELDS),
    "pharoah/dryrun/__init__.py": (2, STATIC),
    "pharoah/dryrun/capabilities.py": (1, STATIC),
    "pharoah/dryrun/extensions/_extension.py": (1, "the user's script imports it, in its sandbox"),
    "pharoah/dryrun/fake_process_group.py": (4, STATIC),
    "pharoah/dryrun/patches.py": (3, STATIC),
    "pharoah/dryrun/placeholder_numbers.py": (9, STATIC),
    "pharoah/dryrun/redirect.py": (2, STATIC),
    "pharoah/dryrun/step_boundary.py": (2, STATIC),
    "pharoah/dryrun/strategies.py": (1, STATIC),
    "pharoah/launchers/fabric.py": (1, STATIC),
    "pharoah/replay/digests.py": (3, "`FLAGS`; the reader of step files refuses other names"),
    "pharoah/sidecar/exchange_client.py": (1, STATIC),
    "pharoah/sidecar/pseudonym_client.py": (1, STATIC),
    "pharoah/sidecar/renewed_channel.py": (1, STATIC),
    "pharoah/sidecar/run_reporter.py": (2, STATIC),
    "pharoah/torch_names.py": (6, "names of torch in its own table, and operators that torch lists"),
    "pharoah_archetypes/documented/relations.py": (1, FIELDS),
    "pharoah_auditor/cli.py": (1, FIELDS),
    "pharoah_benchmarks/faults/_fault.py": (1, FIELDS),
    "pharoah_benchmarks/micro/_benchmark.py": (1, FIELDS),
    "pharoah_benchmarks/micro/_families.py": (1, "a class that an entry of the registry names"),
    "pharoah_benchmarks/micro/_order.py": (1, FIELDS),
    "pharoah_benchmarks/workloads/__init__.py": (1, "the script beside a workload's file, in a folder of the provider"),
    "pharoah_benchmarks/workloads/transformers_model.py": (1, "a class that transformers lists; others are refused"),
    "pharoah_learning/portable_table.py": (1, FIELDS),
    "pharoah_protocol/guest_probes.py": (1, FIELDS),
    "pharoah_protocol/registry.py": (5, "modules of the package, and distributions that are installed"),
    "pharoah_protocol/rpc.py": (3, "methods of the schema"),
    "pharoah_protocol/voprf/libsodium.py": (3, STATIC),
    "pharoah_provider/agent/signals/_nvml_fields.py": (3, STATIC),
    "pharoah_provider/agent/signals/_signal.py": (2, FIELDS),
    "pharoah_provider/agent/xid_catalogue.py": (1, FIELDS),
    "pharoah_provider/cell_results.py": (2, FIELDS),
    "pharoah_provider/cli/_calls.py": (3, STATIC),
    "pharoah_provider/cli/serve.py": (1, STATIC),
    "pharoah_provider/row_display.py": (1, FIELDS),
    "pharoah_provider/services/operator.py": (2, STATIC),
    "pharoah_provider/services/runs.py": (1, STATIC),
    "pharoah_provider/storage/duckdb/evidence.py": (2, FIELDS),
    "pharoah_provider/storage/duckdb/idle_checks.py": (1, FIELDS),
    "pharoah_provider/storage/duckdb/reports.py": (2, FIELDS),
    "pharoah_provider/storage/duckdb/telemetry.py": (2, FIELDS),
    "pharoah_serving/listener.py": (1, "methods of the schema"),
    "pharoah_serving/reading_worker.py": (3, "the table that the provider names when it starts the process"),
    "pharoah_system/command_table.py": (1, "modules of commands, from the table of the command line"),
}
"""Places that turn a name which is no literal into an attribute, a module or code."""

_MODULES = {
    "bz2", "cloudpickle", "configparser", "dill", "gzip", "joblib", "lzma", "marshal", "pickle", "plistlib", "shelve",
    "tarfile", "tomllib", "xml", "yaml", "zipfile",
}  # fmt: skip
"""Modules that read a format: to import one is to read without bounds."""
_JSON = {"load", "loads", "JSONDecoder"}
_LOOK_UPS = {
    "getattr", "setattr", "delattr", "eval", "exec", "compile", "__import__", "import_module",
    "importlib.import_module", "attrgetter", "operator.attrgetter", "methodcaller", "operator.methodcaller",
    "find_spec", "importlib.util.find_spec", "spec_from_file_location", "importlib.util.spec_from_file_location",
    "pkgutil.resolve_name", "reduce",
}  # fmt: skip


def parsers(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a file parses a format."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) if {name.name.partition(".")[0] for name in names} & _MODULES:
                yield node
            case ast.ImportFrom(module=str(module), names=names):
                if module.partition(".")[0] in _MODULES or (module == "json" and {one.name for one in names} & _JSON):
                    yield node
            case ast.Attribute(value=ast.Name(id="json"), attr=attribute) if attribute in _JSON:
                yield node
            case ast.Attribute(value=ast.Name(id="torch"), attr="load"):
                yield node


def patterns(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a file uses a regular expression that is no literal and no constant of a name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=what), args=[first, *_]) if what != "escape":
                if not _is_constant(first):
                    yield node
            case ast.ImportFrom(module="re"):
                yield node


def look_ups(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a file looks up an attribute, a module or code by a name that is no literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (what := ast.unparse(node.func)) in _LOOK_UPS:
            if what == "reduce":
                if ast.unparse(node.args[0]) == "getattr":
                    yield node
                continue
            place = 1 if what in ("getattr", "setattr", "delattr") else 0
            if len(node.args) <= place or not _is_constant(node.args[place]):
                yield node


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.lstrip("_").isupper())


@pytest.mark.parametrize(
    ("found_in", "listed"),
    [(parsers, PARSERS), (patterns, PATTERNS), (look_ups, NAMES)],
    ids=["parsers", "patterns", "names"],
)
def test_only_listed_places_read_without_bounds_or_look_up_names(
    found_in: Callable[[ast.AST], Iterator[ast.AST]], listed: dict[str, tuple[int, str]]
) -> None:
    found: Counter[str] = Counter()
    lines: list[str] = []
    for package, folder in FOLDERS.items():
        for path in modules(package):
            inside = str(path.relative_to(folder))
            for node in found_in(ast.parse(path.read_text())):
                found[inside] += 1
                lines.append(f"{path}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)[:80]}")
    expected = {place: count for place, (count, _) in listed.items()}
    wrong = {place for place in found.keys() | expected.keys() if found[place] != expected.get(place, 0)}
    assert not wrong, "\n".join([*sorted(wrong), *(line for line in lines if any(place in line for place in wrong))])


def test_a_new_place_is_found() -> None:
    """The oracle itself: each way to read without bounds, or to follow a name."""
    for text in ("import yaml", "from json import loads", "json.loads(x)", "import xml.etree", "torch.load(f)"):
        assert [*parsers(ast.parse(text))], text
    for text in ("re.compile(x)", "re.search(f'{x}+', y)", "from re import compile"):
        assert [*patterns(ast.parse(text))], text
    for text in ("getattr(a, b)", "setattr(a, f'{b}', c)", "getattr(*b)", "reduce(getattr, b, c)", "import_module(b)"):
        assert [*look_ups(ast.parse(text))], text
    assert not [*look_ups(ast.parse("getattr(a, 'b', None); getattr(a, _NAME)"))]
