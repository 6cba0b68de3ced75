"""Traces are read to the skeleton that a capture of the same step has. The traces are torch's own, made here."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

from pharoah.capture import recorder as capture
from pharoah_archetypes import Skeleton
from pharoah_provider.traces import TraceError, read_traces
from pharoah_provider.traces.calls import composites

Step = Callable[[], object]


class Attention(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(width), torch.nn.Linear(width, 3 * width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2)
        result: torch.Tensor = x + self.down(torch.nn.functional.dropout(self.up(x).relu()))
        return result


def decoder() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Embedding(50, 16), Attention(16), Attention(16), torch.nn.Linear(16, 50))


def convnet() -> torch.nn.Module:
    blocks = [(torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()) for _ in range(3)]
    layers = [layer for block in blocks for layer in block]
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), *layers, torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(1))


def training(kind: str) -> Step:
    torch.manual_seed(0)
    model = decoder() if kind == "decoder" else convnet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        if kind == "decoder":
            tokens = torch.randint(0, 50, (2, 8))
            loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        else:
            loss = model(torch.randn(2, 3, 16, 16)).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            loss.mul(2).softmax(0)  # what runs aside is no structure
        optimizer.step()

    return step


def captured(step: Step) -> Skeleton:
    recorder = capture.Recorder()
    with recorder:
        step()
    return capture.skeleton_of(recorder.records)


def traced(step: Step, folder: Path, steps: int = 3) -> tuple[Path, Path]:
    """A Kineto trace and an execution trace of the same steps."""
    kineto, execution = folder / "kineto.json.gz", folder / "execution.json"
    observer = ExecutionTraceObserver()
    observer.register_callback(str(execution))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer) as profiler:
        for number in range(steps):
            with record_function(f"ProfilerStep#{number}"):
                step()
    profiler.export_chrome_trace(str(kineto))
    return kineto, execution


@pytest.mark.parametrize("kind", ["decoder", "convnet"])
def test_traces_have_the_skeleton_of_a_capture(kind: str, tmp_path: Path) -> None:
    step = training(kind)
    step()
    kineto, execution = traced(step, tmp_path)
    expected = captured(step)
    [from_execution] = read_traces(execution)
    assert [s.text for s in from_execution.steps] == [expected.text] * 3
    assert from_execution.follows_values
    [from_kineto] = read_traces(kineto)
    assert {step.forward for step in from_kineto.steps} == {expected.forward}
    assert {step.backward for step in from_kineto.steps} == {expected.backward}
    assert len(from_kineto.steps) == 3
    assert not from_kineto.follows_values


def test_every_trace_of_an_archive_is_read(tmp_path: Path) -> None:
    kineto, execution = traced(training("convnet"), tmp_path)
    packed = tmp_path / "both.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(execution, "a/execution.json")
        for name, content in {"a/kineto.json": gzip.decompress(kineto.read_bytes()), "a/._kineto.json": b"x"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert [(trace.source, trace.kind) for trace in read_traces(packed)] == [
        ("both.tar.gz:execution.json", "execution"),
        ("both.tar.gz:kineto.json", "kineto"),
    ]


def test_what_torch_takes_apart_is_what_this_release_takes_apart() -> None:
    """Regenerate composites.txt with the same rule when torch changes."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    kinds: dict[str, list[bool]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            kinds.setdefault(name.partition(".")[0], []).append(has(name, "CompositeImplicitAutograd"))
    known = {f"aten::{name.partition('.')[2]}" for name in composites()}
    assert {name for name, kind in kinds.items() if all(kind)} <= known
    assert all(any(kinds[name]) for name in known), "an operator that autograd sees would be taken apart"


DAMAGED = {
    "cut": (b'{"traceEvents": [{"ph": "X", "name": "a', "at byte 37: Unterminated"),
    "comma": (b'{"traceEvents": [{"ph": "X"} {"ph": "Y"}]}', "at byte 29: expected ','"),
    "entry": (b'{"traceEvents": [7]}', "is no object"),
    "foreign": (b'{"hello": 1}', "no list of traceEvents, nodes, workload_graph"),
    "fields": (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "ts": 1}]}', "KeyError: 'name'"),
    "nodes": (b'{"schema": "1.1.1", "nodes": [{"id": "x", "name": "aten::mm"}]}', "no execution entry"),
    "deep": (b'{"traceEvents": [' + b"[" * 100_000, "nested too deeply"),
    "utf8": (b'{"traceEvents": [{"name": "\xff"}]}', "no UTF-8 text"),
    "varint": (b"\xff" * 40, "no length of a message"),
    "huge": (b"\xff\xff\xff\xff\x7f", "a message of"),
    "short": (b"\x00\x05ab", "ends inside a message"),
    "wire": (b"\x00\x03\x0f\x00\x00", "wire type 7"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_trace_is_an_error_that_says_where(name: str, tmp_path: Path) -> None:
    content, says = DAMAGED[name]
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says) as error:
        list(read_traces(path))
    assert "trace.json: at byte" in str(error.value)


def test_a_cut_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 100_000 + b"]}")[:-20])
    with pytest.raises(TraceError, match="damaged or cut short"):
        list(read_traces(path))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_trace_or_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "trace"
    path.write_bytes(content)
    try:
        assert all(trace.kind in ("kineto", "execution", "chakra") for trace in read_traces(path))
    except TraceError as error:
        assert str(error).startswith("trace: at byte ")


def chakra(nodes: list[dict[str, object]]) -> bytes:
    """Written by protobuf itself from the parts of the schema that matter here."""
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="c", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    attribute, node = file.message_type.add(name="Attribute"), file.message_type.add(name="Node")
    for message, name, number, kind, repeated in (
        (attribute, "name", 1, kinds.TYPE_STRING, False),
        (attribute, "int64_val", 9, kinds.TYPE_INT64, False),
        (attribute, "bool_val", 27, kinds.TYPE_BOOL, False),
        (node, "id", 1, kinds.TYPE_UINT64, False),
        (node, "name", 2, kinds.TYPE_STRING, False),
        (node, "type", 3, kinds.TYPE_INT32, False),
        (node, "ctrl_deps", 4, kinds.TYPE_UINT64, True),
        (node, "duration_micros", 7, kinds.TYPE_UINT64, False),
    ):
        message.field.add(name=name, number=number, type=kind, label=3 if repeated else 1)
    node.field.add(name="attr", number=10, type=kinds.TYPE_MESSAGE, label=3, type_name=".c.Attribute")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    make = message_factory.GetMessageClass(pool.FindMessageTypeByName("c.Node"))
    written = b"\x00"  # the message about the file, empty
    for content in nodes:
        message = make(**content).SerializeToString()
        size, length = len(message), b""
        while size > 0x7F:
            length += bytes([size & 0x7F | 0x80])
            size >>= 7
        written += length + bytes([size]) + message
    return written


def test_chakra_nodes_are_operators_and_collectives(tmp_path: Path) -> None:
    kernel = {"id": 9, "name": "sgemm", "type": 4, "attr": [{"name": "is_cpu_op", "bool_val": False}]}
    nodes = [
        {"id": 300, "name": "aten::linear", "type": 4, "duration_micros": 5},
        {"id": 301, "name": "aten::addmm", "type": 4, "ctrl_deps": [300]},
        {"id": 302, "name": "ncclAllGather", "type": 7, "attr": [{"name": "comm_type", "int64_val": 2}]},
        {"id": 303, "name": "aten::relu", "type": 4, "attr": [{"name": "seq_id", "int64_val": -1}]},
        kernel,
    ]
    path = tmp_path / "rank.0.et"
    path.write_bytes(chakra(nodes))
    [trace] = read_traces(path)
    assert trace.kind == "chakra"
    assert trace.skeleton is not None
    assert trace.skeleton.text == "fwd: gemm AG act"


def test_a_trace_without_structure_has_no_step(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([{"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 1, "tid": 1}]))
    [trace] = read_traces(path)
    assert (trace.steps, trace.skeleton) == ((), None)
