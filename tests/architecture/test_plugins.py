"""What grows is a registry: a plug-in in a temporary folder is seen in the CLI, by the provider and in the docs.

Each plug-in is one module and its metadata, as any distribution ships them. No other file is written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pharoah._finding_kind import GROUP as FINDINGS
from pharoah.dryrun.extensions import GROUP as EXTENSIONS
from pharoah.end_causes import GROUP as END_CAUSES
from pharoah.launchers import GROUP as LAUNCHERS
from pharoah.local_alerts import GROUP as DETECTORS
from pharoah_benchmarks.faults import GROUP as FAULTS
from pharoah_benchmarks.micro import GROUP as MICRO_BENCHMARKS
from pharoah_benchmarks.strategies import GROUP as STRATEGIES
from pharoah_learning.signals import GROUP as SIGNALS
from pharoah_protocol.incident_states import GROUP as INCIDENT_STATES
from pharoah_provider.agent.facts import GROUP as FACTS
from pharoah_provider.agent.signals import GROUP as NODE_SIGNALS
from pharoah_provider.backfill import GROUP as BACKFILL
from pharoah_provider.campaigns.executors import GROUP as EXECUTORS
from pharoah_provider.listings import GROUP as LISTINGS
from pharoah_provider.registries import OVERVIEWS, markdown
from pharoah_provider.schedulers import GROUP as SCHEDULERS
from tests.harness.plugins import write_plugin

ROOT = Path(__file__).parents[2]


class Plugin(NamedTuple):
    registry: str
    group: str
    name: str
    source: str
    used: str
    """Code that ends without an error where the product works with the entry."""


PLUGINS = [
    Plugin(
        "micro-benchmarks",
        MICRO_BENCHMARKS,
        "integer_sum",
        """
from pharoah_benchmarks.micro import MicroBenchmark, Noise, Placement, Resource
from pharoah_protocol.vocabulary import DeviceKind

ENTRY = MicroBenchmark(
    name="integer_sum", measures="time of a sum in plain Python; size: its terms", resource=Resource.COMPUTE,
    device=DeviceKind.CPU, dtype="int", size=1000, noise=Noise(log_ratio_sd=0.2, source="a test"),
    placement=Placement.BESIDE_JOB, repeats=3, limit_seconds=1.0, build=lambda _: lambda: sum(range(1000)),
)
""",
        """
from pharoah_benchmarks.micro import MeasureOrder, suitable
from pharoah_benchmarks.micro._measure import measure
from pharoah_protocol.vocabulary import DeviceKind
assert "integer_sum" in [benchmark.name for benchmark in suitable({DeviceKind.CPU}, True)]
order = MeasureOrder(benchmark="integer_sum", repeats=3, limit_seconds=1.0)
assert len(measure(order).seconds) == 3
""",
    ),
    Plugin(
        "strategies",
        STRATEGIES,
        "alone_together",
        """
from pharoah_benchmarks.strategies import Distributed, Strategy
ENTRY = Strategy(
    name="alone_together", help="every rank trains for itself",
    distribute=lambda model, optimizer: Distributed(model, optimizer.make_optimizer(model.parameters())),
)
""",
        """
from pharoah_benchmarks.campaign.cell import Cell
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.campaign.plan import parse_plan
plan = '[[workload]]\\nname = "mlp"\\nsettings = { strategy = "alone_together", ranks = 2, width = 8 }\\n'
result = run_trial(parse_plan(plan).cells[0])
assert result.outcome == "ok", result
""",
    ),
    Plugin(
        "faults",
        FAULTS,
        "step_pause",
        """
import time
from pharoah_benchmarks.faults import Dose, Effect, Fault
from pharoah_benchmarks.micro import Resource

class Pause(Effect):
    def __init__(self, place):
        self.place = place
    def before_step(self):
        time.sleep(self.place.schedule.dose * self.place.schedule.share())

ENTRY = Fault(
    name="step_pause", help="the process sleeps before each step", resource=Resource.COMPUTE,
    dose=Dose(unit="seconds", least=0, most=1, examples=(0.1,)), inside=Pause,
)
""",
        """
from pharoah_benchmarks.campaign.cell_runner import run_trial
from pharoah_benchmarks.campaign.plan import parse_plan
plan = '[[workload]]\\nname = "mlp"\\n[degrade]\\nworkload = "mlp"\\nsettings = { width = 8 }\\nhealthy = 0\\n'
plan += 'onset_seconds = 0\\nseconds = 1\\n[[degrade.fault]]\\nname = "step_pause"\\ndoses = [0.3]\\n'
result = run_trial(parse_plan(plan).degraded[0])
assert result.outcome == "ok" and result.telemetry[0].values["step_seconds"] > 0.3, result
""",
    ),
    Plugin(
        "launchers",
        LAUNCHERS,
        "tidyrun",
        """
from pharoah.launchers import Launcher, launch_of
ENTRY = Launcher("tidyrun", "a command, tidily", ("tidyrun",), lambda words: launch_of(words[1:]))
""",
        """
from pharoah.launchers import launch_of
assert launch_of(["tidyrun", "torchrun", "train.py"]).program.launcher == "torchrun"
""",
    ),
    Plugin(
        "extensions",
        EXTENSIONS,
        "fastkernels",
        """
from pharoah.dryrun.extensions import Extension
ENTRY = Extension(
    name="fastkernels", help="the fastest kernels", distribution="fast-kernels", version="1.2",
    modules=lambda: {"fastkernels": {"twice": lambda x: 2 * x}},
)
""",
        """
from importlib.metadata import version
from pharoah.dryrun.extensions import missing_extension, substitute
assert missing_extension(ModuleNotFoundError(name="fastkernels")) == "fastkernels"
substitute(["fastkernels"])
from fastkernels import twice
assert twice(2) == 4 and version("fast_kernels") == "1.2"
""",
    ),
    Plugin(
        "signals",
        SIGNALS,
        "loss_spread",
        """
from pharoah_learning.signals import Feature, Signal, Source, WorseDirection

ENTRY = Signal(
    name="loss_spread", measures="spread of the loss over its own baseline, a ratio", source=Source.REPORT,
    worse=WorseDirection.HIGHER,
    features=(Feature(name="unrest", measures="the last value", compute=lambda values: values[-1]),),
)
""",
        """
from pharoah_learning.signals import feature_names, features
from pharoah_protocol.windows import Window
assert "unrest" in feature_names()
assert features([Window(at_seconds=0.0, values={"loss_spread": 0.5})])["unrest"] == 0.5
""",
    ),
    Plugin(
        "node-signals",
        NODE_SIGNALS,
        "disk_failing",
        """
from pharoah_provider.agent.signals import TROUBLE_UNIT, AgentSignal, Reading, Resource, SignalKind, WorseDirection

ENTRY = AgentSignal(
    name="disk_failing", measures="whether a disk predicts its failure", unit=TROUBLE_UNIT, worse=WorseDirection.HIGHER,
    leaves_node=True, read=lambda: [Reading(1.0, "sda")], resource=Resource.STORAGE, kind=SignalKind.GAUGE,
)
""",
        """
from pharoah_provider.agent.telemetry import Telemetry
assert any("disk_failing" in str(sample) for sample in Telemetry().sample())
""",
    ),
    Plugin(
        "facts",
        FACTS,
        "rack_place",
        """
from pharoah_provider.agent.facts import FactGroup
ENTRY = FactGroup(name="rack_place", help="a label", facts=("rack",), read=lambda: {"rack": "7"})
""",
        """
from pharoah_provider.agent.node_facts import NodeFacts
assert NodeFacts({}).read()["rack"] == "7"
""",
    ),
    Plugin(
        "incident-states",
        INCIDENT_STATES,
        "chronic",
        """
from pharoah_protocol.incident_states import IncidentState, Rule

ENTRY = IncidentState(
    "chronic", code=64, help="It has been confirmed for a week.", is_open=True, is_reported=True,
    rule=Rule(("confirmed",), lambda facts: facts.open_seconds > 7 * 86_400),
)
""",
        """
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, IncidentState
from pharoah_provider.domain import Subject
from pharoah_provider.monitoring.incidents import Incident
incident = Incident(Subject.node("n1"), state=CONFIRMED, since=0.0)
assert incident.apply_rules(86_400.0) is None
assert incident.apply_rules(8 * 86_400.0) is IncidentState.from_name("chronic") and incident.confirmed
assert incident.calm() is CLEARED
""",
    ),
    Plugin(
        "end-causes",
        END_CAUSES,
        "exit-75",
        """
from pharoah.end_causes import EndCause, JudgedEnd
from pharoah_protocol.vocabulary import EndState

ENTRY = EndCause("exit-75", "a job that asks to be moved (sysexits(3), EX_TEMPFAIL)", 1000,
                 lambda facts: JudgedEnd(EndState.MOVED) if facts.status == 75 else None)
""",
        """
from pharoah.end_causes import EndFacts, judge_end
from pharoah_protocol.vocabulary import EndState
assert judge_end(EndFacts(status=75), EndState.FAILED).state is EndState.MOVED
""",
    ),
    Plugin(
        "detectors",
        DETECTORS,
        "no_steps",
        """
from pharoah.local_alerts import Condition, Detector
from pharoah_protocol.vocabulary import Attribution, Resource

class NoSteps:
    wants_lateness = False

    def look(self, view):
        if not view.steps:
            yield Condition(key="no_steps", resource=Resource.COMPUTE, fault_domain=Attribution.UNKNOWN,
                            what="no steps", where="here", likely="it waits", action="look", evidence="none",
                            since=view.unix)

ENTRY = Detector("no_steps", "a job that does not step", NoSteps)
""",
        """
from pharoah.local_alerts import AlertBook, View, detectors
watching, book = detectors()["no_steps"].start(), AlertBook("run")
fired = [a for at in range(9) for a in book.update(at, at, watching.look(View(at=at, unix=at)))]
assert [alert.what for alert in fired] == ["no steps"]
""",
    ),
    Plugin(
        "executors",
        EXECUTORS,
        "nowhere",
        """
from contextlib import asynccontextmanager
from pharoah_provider.campaigns.executors import ExecutorKind

@asynccontextmanager
async def opened(settings, fleet):
    yield None

ENTRY = ExecutorKind(name="nowhere", help="a queue that nobody empties", has_contexts=False, options=("slots",),
                     remedy="wait", check=lambda settings: None, open=opened)
""",
        """
from pharoah_provider.campaigns.executor_settings import ExecutorSettings
from pharoah_provider.campaigns.executors import executor_of
assert executor_of(ExecutorSettings(name="nowhere", slots=3)).remedy == "wait"
""",
    ),
    Plugin(
        "listings",
        LISTINGS,
        "node-count",
        """
from pharoah_provider.listings import Listing, select

ENTRY = Listing(name="node-count", help="how many nodes there are", columns=("nodes",),
                rows=select("SELECT count(*) AS nodes FROM nodes"))
""",
        """
import asyncio, tempfile
from pathlib import Path
from pharoah_provider.cli import _parser
from pharoah_provider.storage.duckdb import DuckStorage
from tests.harness.listings import listed
assert "node-count" in _parser().format_help()
with tempfile.TemporaryDirectory() as folder:
    storage = DuckStorage(Path(folder) / "p.duckdb")
    assert asyncio.run(listed(storage, "node-count")) == [{"nodes": 0}]
    storage.close()
""",
    ),
    Plugin(
        "schedulers",
        SCHEDULERS,
        "ledger-queue",
        """
from pharoah_provider.schedulers import Scheduler

ENTRY = Scheduler("ledger-queue", "closes and opens queues",
                  lambda order: f"close {order.node}", lambda order: f"open {order.node}")
""",
        """
from pharoah_provider.cli import _parser
from pharoah_provider.schedulers import SCHEDULERS, NodeOrder, commands
assert list(commands(SCHEDULERS["ledger-queue"], [NodeOrder("n1", True)])) == ["close n1"]
assert _parser(words := ["drain-commands", "ledger-queue"]).parse_args(words).scheduler == "ledger-queue"
""",
    ),
    Plugin(
        "findings",
        FINDINGS,
        "quota-low",
        """
from pharoah._finding_kind import FindingKind
from pharoah_protocol.vocabulary import FindingSeverity

ENTRY = FindingKind("quota-low", FindingSeverity.WARN, "only {hours} GPU hours are left", "Ask for more.")
""",
        """
from pharoah._finding_kind import finding_kinds
from pharoah.cli.main import main
assert finding_kinds()["quota-low"].create(hours=3).what == "only 3 GPU hours are left"
assert main(["findings"]) == 0
""",
    ),
    Plugin(
        "backfill",
        BACKFILL,
        "ledger",
        """
import numpy as np
from pharoah_provider.backfill import BackfillSource, Table

def read(path):
    return Table(path, {"what": np.array(["bert"]), "end": np.array(["ok"])})

ENTRY = BackfillSource("ledger", "a ledger of jobs", read, 'model = "what"\\nend_state = "end"')
""",
        """
from pharoah_provider.cli import main
assert main(["backfill", "any.file", "--source", "ledger"]) == 0
""",
    ),
]


SEES = """
import contextlib, io, json, sys, traceback
from pharoah_provider.cli import main

def printed(*arguments):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main(list(arguments)) == 0
    return output.getvalue()

def fault(code):
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, "used", "exec"), {"__name__": "used"})
    except BaseException:
        return traceback.format_exc()
    return ""

used = json.loads(sys.argv[1])
seen = {name: json.loads(printed("registries", name, "-o", "json"))[name] for name in used}
faults = {name: fault(code) for name, code in used.items()}
print(json.dumps({"rows": seen, "markdown": printed("registries", "--markdown"), "faults": faults}))
"""


class Seen(NamedTuple):
    """What a process sees in whose environment all plug-ins of this module are installed."""

    rows: dict[str, list[dict[str, Any]]]
    """The rows of each registry, as the CLI prints them."""
    markdown: str
    faults: dict[str, str]
    """What the code of each plug-in has raised; empty when it has ended without an error."""


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "COLUMNS": "80"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """One process for all plug-ins: most of its time is that of the imports."""
    folder = tmp_path_factory.mktemp("plugins")
    for plugin in PLUGINS:
        write_plugin(folder, plugin.group, plugin.source, name=f"plugin_of_{plugin.registry.replace('-', '_')}")
    command = [sys.executable, "-c", SEES, json.dumps({plugin.registry: plugin.used for plugin in PLUGINS})]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(folder))
    assert done.returncode == 0, done.stderr
    return Seen(**json.loads(done.stdout))


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.registry)
def test_an_entry_of_a_plugin_is_seen_everywhere(plugin: Plugin, seen: Seen) -> None:
    assert plugin.name in [row["name"] for row in seen.rows[plugin.registry]]
    assert f"| {plugin.name} |" in seen.markdown
    assert not seen.faults[plugin.registry]


def test_every_registry_has_a_plugin_here() -> None:
    assert {plugin.registry for plugin in PLUGINS} == {overview.name for overview in OVERVIEWS}


def test_the_documentation_has_the_page_of_registries() -> None:
    text = (ROOT / "docs" / "registries.md").read_text()
    assert text == markdown(), "run `pharoah-provider registries --markdown > docs/registries.md`"


def test_the_table_of_registries_fits_80_columns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pharoah_provider.cli", "registries"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(tmp_path), check=True)
    assert max(map(len, done.stdout.splitlines())) <= 80
