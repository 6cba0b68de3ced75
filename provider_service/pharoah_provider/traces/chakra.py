"""Chakra traces (MLCommons, `et_def.proto`): graphs of operators and collectives, as protobuf or as JSON.

Source of the format: Sridharan et al., "Chakra: Advancing Performance Benchmarking and Co-design using Standardized
Execution Traces", 2023. Only what names a node and places it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pharoah_provider.traces.calls import Call, NumberedCall, in_order
from pharoah_provider.traces.files import MAX_ENTRY, Reader

_SEND, _RECEIVE, _COLLECTIVE = 5, 6, 7
_COLLECTIVES = {
    0: "c10d::allreduce_",
    2: "c10d::allgather_",
    5: "c10d::broadcast_",
    6: "c10d::alltoall_",
    7: "c10d::reduce_scatter_",
}
MAX_FIELDS = 50_000
"""Fields of one node, and others that it waits for: a barrier of the largest jobs waits for as many."""
_PART = re.compile(r"\((\d+)\)$")
"""A call that others interrupt is written in numbered parts."""

Node = dict[str, Any]
"""`id`, `name`, `type`, `ctrl_deps`, and the attributes."""


def calls_of(nodes: Iterable[Node]) -> list[Call]:
    """The calls on the processor's side in the order they began.

    Raises KeyError, TypeError or ValueError for a node that is none; OverflowError for more than MAX_CALLS.
    """
    return in_order(_call(node, name) for node in nodes if (name := _name(node)))


def _call(node: Node, name: str) -> NumberedCall:
    number, around = int(node["id"]), node.get("ctrl_deps") or [-1]
    call = Call(name, float(number), recorded=int(node.get("seq_id", -1)) >= 0)
    return NumberedCall(number=number, around=int(around[0]), call=call)


def _name(node: Node) -> str:
    """What a node calls; empty for parts of calls, kernels, memory, and metadata."""
    name, kind = str(node["name"]), node["type"]
    if not node.get("is_cpu_op", True):
        return ""
    if part := _PART.search(name):
        if part[1] != "0":
            return ""
        name = name[: part.start()]
    if kind == _COLLECTIVE and "::" not in name:
        return _COLLECTIVES.get(int(node.get("comm_type", -1)), name)
    return {_SEND: "c10d::send", _RECEIVE: "c10d::recv_"}.get(kind, name)


def json_node(entry: dict[str, Any]) -> Node:
    """A node as JSON writers spell it."""
    lower = {key.lower().replace("ctrldeps", "ctrl_deps").replace("nodetype", "type"): v for key, v in entry.items()}
    # One writer replaced every "id" by "Id", names included.
    return {**lower, "name": str(lower["name"]).replace("Id", "id")}


def protobuf_nodes(reader: Reader) -> Iterator[Node]:
    """The nodes of a protobuf file: messages with their lengths before them, the first about the file."""
    metadata = True
    while reader.peek(1):
        start = reader.offset
        size = _varint(reader)
        if size > MAX_ENTRY:
            raise reader.fault(f"a message of {size:,} bytes: no Chakra trace", start)
        if not size and not metadata:
            raise reader.fault("an empty message: no Chakra trace", start)
        message = reader.read(size)
        if len(message) < size:
            raise reader.fault("the file ends inside a message", start)
        if not metadata:
            try:
                yield _node(message)
            except (IndexError, UnicodeDecodeError, ValueError) as fault:
                raise reader.fault(f"no Chakra node: {fault}", start) from None
        metadata = False


def _node(message: bytes) -> Node:
    node: Node = {"ctrl_deps": [], "type": 0, "name": "", "id": 0}
    for number, (field, value) in enumerate(_fields(message)):
        if number > MAX_FIELDS or len(node["ctrl_deps"]) > MAX_FIELDS:
            raise ValueError(f"more than {MAX_FIELDS:,} fields or nodes that it waits for")
        if field in (1, 3) and isinstance(value, int):
            node["id" if field == 1 else "type"] = value
        elif field == 2 and isinstance(value, bytes):
            node["name"] = value.decode()
        elif field == 4:
            node["ctrl_deps"] += [value] if isinstance(value, int) else list(_pack(value))
        elif field == 10 and isinstance(value, bytes):
            node.update([_attribute(value)])
    if not node["name"]:
        raise ValueError("it has no name")
    return node


def _attribute(message: bytes) -> tuple[str, Any]:
    name = ""
    content: bool | int | None = None
    for field, value in _fields(message):
        if field == 1 and isinstance(value, bytes):
            name = value.decode()
        elif field == 27:
            content = bool(value)
        elif field in (7, 9) and isinstance(value, int):
            content = value - (1 << 64) if value >> 63 else value
        elif field in (11, 13) and isinstance(value, int):
            content = value
    return (name if name in ("is_cpu_op", "comm_type", "seq_id") else ""), content


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field number and raw value of a protobuf message (encoding: protobuf.dev/programming-guides/encoding)."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        wire = key & 7
        if wire == 0:
            number, at = _read_varint(message, at)
            yield key >> 3, number
            continue
        size, at = _read_varint(message, at) if wire == 2 else ({1: 8, 5: 4}.get(wire, 0), at)
        if not size and wire != 2:
            raise ValueError(f"wire type {wire}")
        if at + size > len(message):
            raise ValueError("a field is longer than its message")
        yield key >> 3, message[at : at + size]
        at += size


def _pack(content: bytes) -> Iterator[int]:
    at = 0
    for _ in range(MAX_FIELDS):
        if at == len(content):
            return
        number, at = _read_varint(content, at)
        yield number
    raise ValueError(f"more than {MAX_FIELDS:,} nodes that it waits for")


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _varint(reader: Reader) -> int:
    content = b""
    while True:
        byte = reader.read(1)
        content += byte
        if not byte or len(content) > 10:
            raise reader.fault("no length of a message")
        if byte[0] < 0x80:
            return _read_varint(content, 0)[0]
