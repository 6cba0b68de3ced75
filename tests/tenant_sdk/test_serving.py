"""Jobs that serve: which calls of models are a step, in a dry run and in the running job."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pharoah._errors import UnknownReason
from pharoah_archetypes import Fingerprint, Skeleton, catalogue, nearest
from tests.harness.torch_server import TorchServer
from tests.tenant_sdk.conftest import STEP, TRAIN, DryRunner

MODEL = TRAIN.partition("optimizer")[0]
TWO_MODELS = """
import torch
encoder = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
decoder = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3), torch.nn.Flatten(), torch.nn.Tanh())
def request():
    with torch.no_grad():
        for _ in range(2):
            hidden = encoder(torch.randn(1, 8))
        for _ in range(5):
            decoder(hidden[:, None])
"""
GENERATES = """
import torch
from torch import nn
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.project, self.head = nn.Embedding(16, 8), nn.Linear(8, 24), nn.Linear(8, 16)
    def forward(self, tokens, kept=None):
        query, key, value = self.project(self.table(tokens)).chunk(3, -1)
        if kept is not None:
            key, value = torch.cat([kept[0], key], 1), torch.cat([kept[1], value], 1)
        mixed = nn.functional.scaled_dot_product_attention(
            query[:, None], key[:, None], value[:, None], is_causal=kept is None
        )
        return self.head(mixed[:, 0]), (key, value)
model = Decoder().eval()
@torch.inference_mode()
def request(length=6, more=4):
    logits, kept = model(torch.randint(0, 16, (1, length)))
    for _ in range(more):
        logits, kept = model(logits[:, -1:].argmax(-1), kept)
"""
FUSED = """
import torch
layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 2).eval()
@torch.no_grad()
def request():
    model(torch.randn(2, 5, 8))
"""
SLICED = """
import torch
class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(8, 4, bias=False)
    def forward(self, x):
        return self.head(x[:, -1:])
model = Head().eval()
def request():
    with torch.inference_mode():
        model(torch.randn(3, 5, 8))
"""


def requests(call: str, count: int = 6) -> str:
    return f"for number in range({count}):\n    {call}\n"


@pytest.mark.parametrize("context", ["torch.inference_mode()", "torch.no_grad()", "torch.enable_grad()"])
def test_a_model_that_answers_is_a_step(context: str, dry: Callable[..., Fingerprint]) -> None:
    found = dry(MODEL + f"with {context}:\n    for _ in range(6): model(torch.randn(4, 8))\n")
    assert found.serves
    assert found.grammar == "fwd: gemm act gemm"
    assert found.sizes["parameters"] == (8 * 8 + 8 + 8 + 1) * 4
    assert "optimizer" not in found.features


def test_an_evaluation_before_training_is_no_service(dry: Callable[..., Fingerprint]) -> None:
    evaluation = "with torch.no_grad():\n    for _ in range(9): model(torch.randn(4, 8))\n"
    found = dry(MODEL + evaluation + TRAIN.partition("1))\n")[2] + STEP * 4)
    assert found == dry(TRAIN + STEP * 4)


def test_a_script_that_only_evaluates_although_it_could_train_serves(dry: Callable[..., Fingerprint]) -> None:
    source = MODEL + "import sys\nif len(sys.argv) > 9: torch.optim.SGD(model.parameters(), lr=1)\n"
    assert dry(source + "with torch.no_grad(): model(torch.randn(4, 8))\n").serves
    assert dry(source + "with torch.no_grad(): model(torch.randn(4, 8))\nsys.exit(0)\n").serves


def test_a_failure_is_not_a_service(dry_run_script: DryRunner) -> None:
    with pytest.raises(UnknownReason, match="no such data"):
        dry_run_script(TRAIN + "with torch.no_grad(): model(torch.randn(4, 8))\nraise OSError('no such data')\n")


def test_a_service_that_never_ends_has_a_result(dry: Callable[..., Fingerprint]) -> None:
    assert dry(MODEL + "while True:\n    model(torch.randn(4, 8))\n", seconds=30.0).serves


@pytest.mark.parametrize("context", ["torch.inference_mode()", "torch.no_grad()", "torch.enable_grad()"])
def test_one_matrix_for_a_batch_is_one_product(context: str, dry: Callable[..., Fingerprint]) -> None:
    """Without gradients torch repeats the matrix when the positions do not lie beside each other in memory."""
    source = SLICED.replace("torch.inference_mode()", context)
    assert dry(source + requests("request()")).grammar == "fwd: gemm"


def test_several_models_are_one_step(dry: Callable[..., Fingerprint]) -> None:
    assert dry(TWO_MODELS + requests("request()")).grammar == "fwd: gemm act conv act"


def test_a_prompt_and_its_tokens_are_one_step(dry_run_script: DryRunner) -> None:
    found = dry_run_script(GENERATES + requests("request(5 + number)"))
    one_call = dry_run_script(GENERATES + requests("request(6, 0)"))
    assert found.fingerprint.archetype == one_call.fingerprint.archetype
    assert found.assumptions == ("the cost is that of a request with 4 calls for one more token",)
    assert found.cost.flops > one_call.cost.flops


def test_a_script_may_say_itself_where_steps_end(dry: Callable[..., Fingerprint]) -> None:
    source = MODEL + "import pharoah\nsession = pharoah.register()\n"
    other = "with torch.no_grad(): torch.nn.Sequential(torch.nn.Conv1d(1, 1, 3))(torch.randn(1, 1, 9))\n"
    calls = "with torch.no_grad(): model(torch.randn(4, 8)); model(torch.randn(4, 8))\n"
    assert "conv" not in dry(source + calls + other + "session.step()\n" + calls + "session.step()\n").grammar


def test_memory_and_work_are_those_of_the_step(dry_run_script: DryRunner) -> None:
    source = "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(64, 32, bias=False))\n"
    calls = "with torch.inference_mode():\n    for _ in range(4): answer = model(torch.randn(16, 64))\n"
    cost = dry_run_script(source + calls).cost
    assert cost.flops == 2 * 16 * 64 * 32
    assert sum(
        size for size, role in zip(allocations(cost.memory.events), cost.memory.roles, strict=True) if role == "p"
    ) == (64 * 32 * 4)


def allocations(events: object) -> list[int]:
    return [event for event in events if event >= 0]  # type: ignore[attr-defined]


def test_an_answer_has_the_name_of_what_is_trained() -> None:
    for entry in catalogue().values():
        answers = Skeleton(entry.skeleton.answer.forward, traits=entry.skeleton.traits)
        assert nearest(answers)[0].similarity == 1.0
        assert nearest(answers)[0].archetype.skeleton.answer == entry.skeleton.answer


CAPTURES = """
import json, torch
from pharoah.capture import hooks
from pharoah.capture.clock import StepClock
from pharoah_protocol.rank_messages import Capture, Steps
seen = {"captures": [], "steps": 0}
class Sink:
    def send(self, message):
        if isinstance(message, Capture): seen["captures"].append(message.fingerprint)
        if isinstance(message, Steps): seen["steps"] += len(message.durations)
clock = StepClock(Sink())
"""


def captured(
    server: TorchServer, source: str, before: str = "clock.serves = True\nhooks.attach(clock)\n"
) -> dict[str, object]:
    """What the clock of a running job sends."""
    code = CAPTURES + before + source + "clock.flush()\nprint(json.dumps(seen))\n"
    seen: dict[str, object] = json.loads(server.run_code(code))
    return seen


@pytest.mark.parametrize(
    "source",
    [
        MODEL + requests("with torch.inference_mode(): model(torch.randn(4, 8))"),
        TWO_MODELS + requests("request()"),
        GENERATES + requests("request()"),
        FUSED + requests("request()"),
        SLICED + requests("request()"),
    ],
    ids=["calls", "two models", "tokens", "fused layers", "one matrix for a batch"],
)
def test_the_captured_step_is_that_of_the_dry_run(
    source: str, dry: Callable[..., Fingerprint], torch_server: TorchServer
) -> None:
    seen = captured(torch_server, source)
    (found,) = seen["captures"]  # type: ignore[misc]
    assert Fingerprint.from_json(found).archetype == dry(source).archetype


def test_time_between_requests_is_no_step_time(torch_server: TorchServer) -> None:
    source = GENERATES + "import time\n" + requests("request(6, 3); time.sleep(0.2)", 4)
    code = CAPTURES.replace(
        'seen["steps"] += len(message.durations)', 'seen.setdefault("times", []).extend(message.durations)'
    )
    before = "clock.serves = True\nhooks.attach(clock)\n"
    seen = json.loads(torch_server.run_code(code + before + source + "clock.flush()\nprint(json.dumps(seen))\n"))
    assert len(seen["times"]) == 4 * 3, "one for each token after the first"
    assert max(seen["times"]) < 200_000_000


@pytest.mark.parametrize("trains", [False, True])
def test_stated_steps_count_the_time_between_them_only_where_the_job_may_train(
    torch_server: TorchServer, trains: bool
) -> None:
    """A job that serves waits for its next request before it calls its model; one that trains by hand changes its
    weights after it."""
    call = "model(torch.randn(4, 8)).sum().backward()" if trains else "with torch.no_grad(): model(torch.randn(4, 8))"
    wait, done = "time.sleep(0.2)", "clock.tick('session')"
    request = f"{call}; {wait}\n    {done}" if trains else f"{wait}\n    {call}\n    {done}"
    source = MODEL + "import time\n" + requests(request, 9)
    code = CAPTURES.replace(
        'seen["steps"] += len(message.durations)', 'seen.setdefault("times", []).extend(message.durations)'
    )
    seen = json.loads(torch_server.run_code(code + source + "clock.flush()\nprint(json.dumps(seen))\n"))
    late = [time for time in seen["times"] if time >= 200_000_000]
    assert len(late) >= 5 if trains else len(late) <= 3, "before the job is taken for one that serves"


def test_a_job_that_trains_after_all_is_timed_by_its_optimizer(torch_server: TorchServer) -> None:
    evaluation = "with torch.no_grad(): model(torch.randn(4, 8))\n"
    seen = captured(torch_server, TRAIN + evaluation * 3 + STEP * 6)
    (found,) = seen["captures"]  # type: ignore[misc]
    assert not Fingerprint.from_json(found).serves


def test_stated_steps_without_an_optimizer_are_captured(torch_server: TorchServer) -> None:
    source = MODEL + requests("with torch.no_grad():model(torch.randn(4, 8))\n    clock.tick('session')", 9)
    (found,) = captured(torch_server, source, before="")["captures"]  # type: ignore[misc]
    assert Fingerprint.from_json(found).grammar == "fwd: gemm act gemm"
    by_hand = MODEL + requests("model(torch.randn(4, 8)).sum().backward()\n    clock.tick('session')", 9)
    assert not captured(torch_server, by_hand, before="")["captures"], "it may be a training by hand"


def test_what_a_model_raises_passes_through(torch_server: TorchServer) -> None:
    source = MODEL + requests(
        "try: model(torch.randn(4, 9 if number == 3 else 8))\n    except RuntimeError as error: print(end='')"
    )
    assert captured(torch_server, source)["steps"] == 5


def test_the_patch_is_taken_out_again(torch_server: TorchServer) -> None:
    code = CAPTURES + "before = torch.nn.Module.__call__\nclock.serves = True\nhooks.attach(clock)\n"
    code += "assert torch.nn.Module.__call__ is not before\nhooks.detach()\nprint(torch.nn.Module.__call__ is before)\n"
    assert torch_server.run_code(code) == b"True\n"


def test_threads_have_steps_of_their_own(torch_server: TorchServer) -> None:
    source = GENERATES + "from concurrent.futures import ThreadPoolExecutor\n"
    source += "with ThreadPoolExecutor(4) as pool:\n    list(pool.map(lambda _: request(), range(40)))\n"
    seen = captured(torch_server, source)
    (found,) = seen["captures"]  # type: ignore[misc]
    assert seen["steps"] == 40 * 4
    assert "attn" in Fingerprint.from_json(found).grammar


ODD_PARAMETERS = {
    "a list": "    def parameters(self): return list(super().parameters())\n",
    "a dictionary": "    parameters = {'rate': 1}\n",
    "a method that raises": "    def parameters(self): raise OSError('not loaded')\n",
}


@pytest.mark.parametrize("parameters", ODD_PARAMETERS.values(), ids=ODD_PARAMETERS)
def test_a_model_whose_parameters_are_no_iterator_is_captured(torch_server: TorchServer, parameters: str) -> None:
    source = f"import torch\nclass Model(torch.nn.Linear):\n{parameters}model = Model(8, 8)\n"
    calls = requests("with torch.no_grad(): model(torch.randn(4, 8))")
    seen = captured(torch_server, source + calls)
    (found,) = seen["captures"]  # type: ignore[misc]
    assert Fingerprint.from_json(found).sizes["parameters"] == (8 * 8 + 8) * 4
    assert seen["steps"] == 5


@pytest.mark.parametrize("patched", [False, True], ids=["", "others patch torch as well"])
def test_the_call_of_a_model_that_has_one_of_its_own_starts_once(torch_server: TorchServer, patched: bool) -> None:
    code = f"""{CAPTURES}
began = {{"model": 0, "patch": 0}}
class Model(torch.nn.Linear):
    def __call__(self, *args):
        began["model"] += 1
        return super().__call__(*args)
asked = []
def connected():
    asked.append(1)
    return clock
clock.serves = True
hooks.watch_models(connected)
if {patched}:
    before = torch.nn.Module.__call__
    def around(*args, **kwargs):
        began["patch"] += 1
        return before(*args, **kwargs)
    torch.nn.Module.__call__ = around
model = Model(8, 8)
with torch.no_grad():
    for _ in range(6):
        model(torch.randn(4, 8))
clock.flush()
print(json.dumps([began, len(asked), len(seen["captures"])]))
"""
    began, asked, captures = json.loads(torch_server.run_code(code))
    assert began == {"model": 6, "patch": 6 if patched else 0}
    assert (asked, captures) == (1, 1)
