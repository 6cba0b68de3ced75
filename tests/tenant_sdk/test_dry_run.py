"""Fingerprints of real steps and of fake ones, in processes of their own: the dry run patches torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from pharoah._errors import UnknownReason
from pharoah_archetypes import Fingerprint
from tests.harness.torch_server import TorchServer
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

REAL = """
import json, sys, torch
from pharoah.capture import hooks
from pharoah.capture.clock import CAPTURE_AFTER_STEP, StepClock
from pharoah_benchmarks.workloads import build
from pharoah_protocol.rank_messages import Capture
class Sink:
    def send(self, message):
        if isinstance(message, Capture):
            print(message.fingerprint)
torch.set_num_threads(1)
step, _ = build(sys.argv[1], json.loads(sys.argv[2]))
hooks.attach(StepClock(Sink()))
for _ in range(CAPTURE_AFTER_STEP + 2):
    step()
"""
FAKE = """
import json, os, sys
from pharoah.dryrun.exploration import UnknownValues
from pharoah.dryrun.fake_tensors import fake_step
from pharoah.dryrun.step_boundary import Finished
from pharoah_benchmarks.workloads import build
for arguments in map(json.loads, sys.argv[1:]):
    if os.fork() == 0:
        try:
            with fake_step(lambda *_: None, UnknownValues(print)):
                step, _ = build(*arguments)
                step()
                step()
        except Finished as finished:
            print(finished.fingerprint.to_json(), flush=True)
        os._exit(0)
    os.wait()
"""


def real(server: TorchServer, workload: str, settings: dict[str, object]) -> Fingerprint:
    return Fingerprint.from_json(server.run_code(REAL, workload, json.dumps(settings)))


def fake(server: TorchServer, *workloads: tuple[str, dict[str, object]]) -> list[Fingerprint]:
    lines = server.run_code(FAKE, *map(json.dumps, workloads)).splitlines()
    return [Fingerprint.from_json(line) for line in lines]


@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("gpt", {"length": 32}),
        ("gpt", {"length": 32, "attention": "math", "dtype": "bfloat16"}),
        ("convnet", {"batch": 2, "size": 16}),
        ("recommender", {"batch": 8, "items": 100}),
    ],
)
def test_a_fake_step_is_the_real_step(torch_server: TorchServer, workload: str, settings: dict[str, object]) -> None:
    assert fake(torch_server, (workload, settings)) == [real(torch_server, workload, settings)]


def test_sizes_depth_and_dtype_are_no_structure(torch_server: TorchServer) -> None:
    small, large = fake(
        torch_server,
        ("gpt", {"length": 32, "width": 64, "depth": 2, "heads": 2}),
        ("gpt", {"length": 64, "width": 128, "depth": 5, "batch": 1, "dtype": "bfloat16"}),
    )
    assert small.archetype == large.archetype
    assert small.sizes["parameters"] < large.sizes["parameters"]


def test_four_workloads_are_four_archetypes(torch_server: TorchServer) -> None:
    found = {
        seen.archetype
        for seen in fake(torch_server, *((name, {}) for name in ("gpt", "convnet", "mlp", "recommender")))
    }
    assert len(found) == 4


def test_the_script_of_an_example_is_the_campaigns_workload(dry_run: DryRunner, torch_server: TorchServer) -> None:
    example = Path(__file__).parents[2] / "examples" / "train_gpt.py"
    fingerprint = dry_run([sys.executable, str(example), "--length", "64"], 60.0).fingerprint
    assert [fingerprint.archetype] == [seen.archetype for seen in fake(torch_server, ("gpt", {"length": 64}))]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (TRAIN, "ended before an optimizer stepped"),
        ("raise SystemExit(3)", "exited with 3"),
        ("import nowhere_to_be_found", r"ModuleNotFoundError.*train.py:1"),
        (TRAIN + "import os, sys; os.execv(sys.executable, ['python', '-c', '0'])\n", "os.exec"),
        (
            TRAIN
            + "import threading\nt = threading.Thread(target=lambda: exec(STEP))\n".replace("STEP", repr(STEP))
            + "t.start(); t.join()\n",
            "another thread",
        ),
        (TRAIN + "import os; os.abort()", "died.*SIGABRT"),
        (TRAIN + "while True: pass", "longer than"),
    ],
)
def test_what_cannot_be_dry_run_says_why_and_leaves_nothing(
    dry: Callable[..., Fingerprint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownReason, match=reason):
        dry(source, seconds=2.0 if "while True" in source else 30.0)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


SIDE_EFFECTS = {
    "writes": "open('left-behind', 'w')",
    "os.mkdir": "import os; os.mkdir('left-behind')",
    "subprocess.Popen": "import subprocess; subprocess.run(['touch', 'left-behind'], check=True)",
    "socket.bind": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 47651)); s.listen()",
    "os.remove": "import os; os.remove('train.py')",
}


@pytest.mark.parametrize("line", SIDE_EFFECTS.values(), ids=SIDE_EFFECTS)
def test_in_the_sandbox_side_effects_succeed_and_change_nothing_outside(
    dry: Callable[..., Fingerprint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    if not sandbox_is_allowed():
        pytest.skip("this machine allows no namespaces")
    monkeypatch.chdir(tmp_path)
    assert dry(f"{line}\n{TRAIN}{STEP}").grammar.startswith("fwd: gemm act gemm")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


REFUSED = """
import sys
from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run_step, isolation
def refuse():
    raise isolation.IsolationError(1, "not today")
isolation.isolate = refuse
for source in sys.argv[1:]:
    try:
        dry_run_step(lambda: exec(source, {}), 30.0)
    except UnknownReason as reason:
        print(reason)
"""


@pytest.mark.parametrize(("named", "line"), SIDE_EFFECTS.items(), ids=SIDE_EFFECTS)
def test_without_a_sandbox_side_effects_are_refused_and_named(
    torch_server: TorchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    swallowing = f"try:\n    {line}\nexcept BaseException:\n    pass"
    reasons = torch_server.run_code(REFUSED, line, swallowing).decode().splitlines()
    assert len(reasons) == 2
    assert all(re.search(f"{named}.*not today", reason) for reason in reasons), reasons
    assert list(tmp_path.iterdir()) == []


@cache
def sandbox_is_allowed() -> bool:
    code = "from pharoah.dryrun.isolation import isolate; isolate()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_script_may_look_at_its_data_and_log_its_loss(dry: Callable[..., Fingerprint]) -> None:
    source = TRAIN + (
        "lengths = torch.tensor([3, 5])\n"
        "x = torch.randn(int(lengths.max()), 8)\n"
        "loss = model(x).pow(2).mean()\n"
        "assert not torch.isnan(loss)\n"
        "print(f'{loss:.3f}', loss.item() / 2, 'mean', sum([loss.item(), 1.0]))\n"
        "loss.backward()\noptimizer.step()\n"
    )
    assert dry(source).grammar.startswith("fwd: gemm act gemm")


def test_ordinary_scripts_copy_save_load_and_count(dry: Callable[..., Fingerprint]) -> None:
    source = (
        TRAIN
        + """
import copy, numpy
from torch.utils import data
rows = data.TensorDataset(torch.from_numpy(numpy.random.rand(70_000, 8).astype("float32")))
some, rest = data.random_split(rows, [69_000, 1_000], generator=torch.Generator().manual_seed(1))
torch.save({"model": model.state_dict(), "step": 7, "mask": torch.tensor([1, 2])}, "checkpoint.pt")
loaded = torch.load("checkpoint.pt", weights_only=True)
assert loaded["step"] == 7 and loaded["mask"].tolist() == [1, 2]
model.load_state_dict(loaded["model"])
averaged = copy.deepcopy(model)
assert copy.deepcopy(torch.tensor([3])).item() == 3
for x, in data.DataLoader(some, 8, shuffle=True, num_workers=2):
    out = model(x)
    out.pow(2).mean().backward()
    optimizer.step()
    for mine, theirs in zip(averaged.parameters(), model.parameters()):
        mine.data.lerp_(theirs.data, 0.1)
    correct = (out > 0).sum().item()
    print(f"{correct / 8:.1%}", correct, round(correct / 3, 2), float(out.mean()))
"""
    )
    assert dry(source).grammar.startswith("fwd: gemm act gemm")


def test_a_script_for_a_gpu_runs_unchanged(dry: Callable[..., Fingerprint]) -> None:
    on_cpu = TRAIN + "x = torch.randn(4, 8)\nmodel(x).pow(2).mean().backward()\noptimizer.step()\n"
    on_gpu = (
        "import torch\n"
        "device = torch.device('cuda', 0)\ntorch.cuda.set_device(device)\ntorch.backends.cudnn.benchmark = True\n"
        "model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).cuda()\n"
        "model = torch.compile(model)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "scaler = torch.amp.GradScaler('cuda')\n"
        "stream, began = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)\nbegan.record(stream)\n"
        "torch.cuda.nvtx.range_push(torch.cuda.memory_summary())\n"
        "random = torch.Generator('cuda').manual_seed(1)\nassert isinstance(random, torch.Generator)\n"
        "x = torch.randn(4, 8, device='cuda', generator=random).to(device, non_blocking=True)\n"
        "x.record_stream(torch.cuda.current_stream())\n"
        "with torch.autocast('cuda', dtype=torch.bfloat16): loss = model(x).pow(2).mean()\n"
        "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "scaler.step(optimizer)\nscaler.update()\ntorch.cuda.synchronize()\n"
    )
    plain, gpu = dry(on_cpu), dry(on_gpu)
    assert gpu.archetype == plain.archetype
    assert gpu.features == {"dtype": "bfloat16", "optimizer": "sgd/forloop", "compiled": "yes"}


def test_a_machine_without_gpus_checks_for_others(
    dry: Callable[..., Fingerprint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHAROAH_GPUS", "8x NVIDIA H100 80GB HBM3")
    wants = "import torch\nassert torch.cuda.device_count() == 8 and torch.cuda.get_device_capability() == (9, 0)\n"
    assert dry(wants + TRAIN + STEP).hardware["gpu"] == "NVIDIA H100 80GB HBM3"
    monkeypatch.setenv("PHAROAH_GPUS", "8")
    with pytest.raises(UnknownReason, match="PHAROAH_GPUS=8: write"):
        dry(TRAIN)
    monkeypatch.setenv("PHAROAH_GPUS", "2x foo bar")
    with pytest.raises(UnknownReason, match=r"no data sheet is known for GPU foo bar; known are .*H100"):
        dry(TRAIN)


def test_gpus_of_the_command_line_take_precedence(dry_run_script: DryRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHAROAH_GPUS", "8x NVIDIA A100-SXM4-80GB")
    wants = "import torch\nassert torch.cuda.device_count() == 2 and 'H100' in torch.cuda.get_device_name()\n"
    assert dry_run_script(wants + TRAIN + STEP, gpus="2x H100").fingerprint.hardware["gpu"] == "H100"
    with pytest.raises(UnknownReason, match="--gpus 8: write"):
        dry_run_script(TRAIN, gpus="8")


def test_the_code_that_ran_is_named_by_what_it_does(dry_run: DryRunner, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN + STEP)
    package = tmp_path / "peft.py"  # a package of the inventory, for a moment
    digests = []
    for body in ("return 1", "return 1  # a comment", "return 2"):
        package.write_text(f'def used():\n    """Says something."""\n    {body}\ndef unused(): return "{body}"\n')
        script.write_text("import peft\npeft.used()\n" + TRAIN + STEP)
        digests.append(dry_run([sys.executable, str(script)], 60.0, record_code=True).fingerprint.code)
    assert digests[0]["peft"] == digests[1]["peft"] != digests[2]["peft"]
    assert "torch" in digests[0]


def test_a_plain_script_is_fingerprinted(dry: Callable[..., Fingerprint]) -> None:
    fingerprint = dry(TRAIN + "x = 1\n" + STEP)
    assert fingerprint.grammar.startswith("fwd: gemm act gemm")
    assert fingerprint.features == {"dtype": "float32", "optimizer": "sgd/forloop"}
    assert fingerprint.sizes["parameters"] == 4 * (8 * 8 + 8 + 8 + 1)


def test_a_command_that_is_not_python_is_unknown(dry_run: DryRunner) -> None:
    with pytest.raises(UnknownReason, match="`julia` is not a program"):
        dry_run(["julia", "train.jl"], 1.0)


def test_a_python_without_pharoah_is_named(dry_run: DryRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(tmp_path / "bare")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(
        UnknownReason, match=r"is pharoah installed for the command's Python.*No module named '?pharoah"
    ):
        dry_run([str(tmp_path / "bare" / "bin" / "python"), "train.py"], 60.0)


def test_a_step_function_is_fingerprinted_without_touching_its_weights(torch_server: TorchServer) -> None:
    script = TRAIN + (
        "from pharoah.dryrun import dry_run_step\n"
        "before = [p.detach().clone() for p in model.parameters()]\n"
        "def step():\n    model(torch.randn(4, 8)).pow(2).mean().backward()\n    optimizer.step()\n"
        "print(dry_run_step(step, 30.0).fingerprint.to_json())\n"
        "assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))\n"
    )
    assert Fingerprint.from_json(torch_server.run_code(script)).grammar.startswith("fwd: gemm act gemm")


def test_a_step_that_raises_is_the_reason(torch_server: TorchServer) -> None:
    code = """
from pharoah._errors import UnknownReason
from pharoah.dryrun import dry_run_step
def step():
    raise KeyError("nothing here")
try:
    dry_run_step(step, 30.0)
except UnknownReason as reason:
    print(reason)
"""
    assert b"KeyError" in torch_server.run_code(code)


BUSY = """
import threading
from concurrent.futures import ThreadPoolExecutor
import grpc
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
server = grpc.server(ThreadPoolExecutor(2), handlers=(Echo(),))
channel = grpc.insecure_channel(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
server.start()
called = threading.Event()
def call():
    while True:
        channel.unary_unary("/echo/echo")(b"x", wait_for_ready=True)
        called.set()
for _ in range(2):
    threading.Thread(target=call, daemon=True).start()
called.wait()
"""


def test_a_step_function_is_fingerprinted_while_other_threads_are_in_grpc(torch_server: TorchServer) -> None:
    """gRPC's fork handlers wait for threads that a forked child does not have."""
    script = TRAIN + (
        "import os\n"
        "from pharoah.dryrun import dry_run_step\n"
        "def step():\n    model(torch.randn(4, 8)).pow(2).mean().backward()\n    optimizer.step()\n"
        "print(dry_run_step(step, 90.0).fingerprint.to_json(), flush=True)\n"
        "os._exit(0)\n"
    )
    assert Fingerprint.from_json(torch_server.run_code(BUSY + script)).grammar.startswith("fwd: gemm act gemm")


def test_no_thread_of_grpc_runs_where_its_files_are_taken_away(torch_server: TorchServer) -> None:
    """gRPC's fork handlers start its threads again in a forked child, and its pollers abort without their files."""
    script = TRAIN + (
        "import os, time\n"
        "from pharoah.dryrun import dry_run_step, enter\n"
        "read_end, write_end = os.pipe()\n"
        "detach_files = enter._detach_files\n"
        "def detach(results):\n"
        "    os.write(write_end, bytes([len(os.listdir('/proc/self/task'))]))\n"
        "    detach_files(results)\n"
        "enter._detach_files = detach\n"
        "def step():\n    model(torch.randn(4, 8)).pow(2).mean().backward()\n    optimizer.step()\n"
        "dry_run_step(step, 90.0)\n"
        "print(set(os.read(read_end, 100)), flush=True)\n"
        "os._exit(0)\n"
    )
    assert torch_server.run_code(BUSY + script) == b"{1}\n"


def test_a_process_that_trains_is_followed_when_the_script_waits_for_it(dry: Callable[..., Fingerprint]) -> None:
    source = (
        "import torch\nimport torch.multiprocessing as mp\n"
        "def train(rank, model, steps):\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for _ in range(4):\n"
        "        model(torch.randn(4, 8)).pow(2).mean().backward()\n"
        "        optimizer.step()\n"
        "        with steps.get_lock():\n"
        "            steps.value += 1\n"
        "if __name__ == '__main__':\n"
        "    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))\n"
        "    model.share_memory()\n"
        "    steps = mp.Value('i', 0)\n"
        "    workers = [mp.Process(target=train, args=(rank, model, steps)) for rank in range(2)]\n"
        "    for worker in workers:\n        worker.start()\n"
        "    for worker in workers:\n        worker.join()\n"
    )
    assert dry(source).archetype == dry(TRAIN + STEP * 4).archetype


def test_sparse_tensors_are_recorded(dry: Callable[..., Fingerprint]) -> None:
    rows = "adjacent = torch.eye(4).to_sparse()\n"
    compressed = "adjacent = torch.sparse_csr_tensor([0, 1, 2, 3, 4], [0, 1, 2, 3], [1.0] * 4, size=(4, 4))\n"
    neighbours = STEP.replace("model(torch.randn(4, 8))", "(adjacent @ model(torch.randn(4, 8)))")
    named = compressed.replace("([0", "(crow_indices=[0").replace(
        ", [0, 1, 2, 3], [", ", col_indices=[0, 1, 2, 3], values=["
    )
    for made in (rows, compressed, named):
        assert dry(TRAIN + made + neighbours * 4).grammar.startswith("fwd: gemm act gemm")


def test_torch_may_ask_whether_a_mask_is_causal(dry_run_script: DryRunner) -> None:
    layers = "torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(8, 2, 16), 2)"
    source = TRAIN.replace("torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))", layers)
    mask = "mask = torch.log(torch.tril(torch.ones(6, 6)))\n"
    step = "model(torch.randn(6, 3, 8), mask=mask).pow(2).mean().backward()\noptimizer.step()\n"
    found = dry_run_script(source + mask + step * 4)
    assert "causal" in found.fingerprint.grammar.partition("with:")[2]
    assert not found.assumptions
