"""gRPC from descriptors: client stubs and server handlers without generated code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from pharoah_protocol.v1 import service


class Stub:
    """Callables of one service on a channel, one attribute per method: `Stub(channel, "Exchange").GetEpoch(request)`.

    Works on `grpc` and `grpc.aio` channels; each call takes `timeout=` and `metadata=` like any gRPC callable.
    """

    def __init__(self, channel: Any, name: str) -> None:
        for method in service(name).methods:
            request, response = _types(method)
            make = getattr(channel, f"{_side(method.client_streaming)}_{_side(method.server_streaming)}")
            setattr(
                self,
                method.name,
                make(
                    path(method),
                    request_serializer=request.SerializeToString,
                    response_deserializer=response.FromString,
                ),
            )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name}")


def handlers(name: str, methods: Mapping[str, Callable[..., Any]]) -> grpc.GenericRpcHandler[Any, Any]:
    """gRPC handlers of a service from a callable for each of its methods.

    The callables get their requests as a stream of bytes: the code that admits a call (`pharoah_serving.call_guard`) is
    also the code that reads and parses it, so nothing of an unknown caller is parsed (docs/adr/0013). On the wire, a
    call with one message is a stream of one. Raises KeyError when a method is missing.
    """
    built = {}
    for method in service(name).methods:
        _, response = _types(method)
        make = getattr(grpc, f"stream_{_side(method.server_streaming)}_rpc_method_handler")
        built[method.name] = make(methods[method.name], response_serializer=response.SerializeToString)
    return grpc.method_handlers_generic_handler(service(name).full_name, built)


def request_type(method: MethodDescriptor) -> Any:
    """The message class that a method is called with."""
    return _types(method)[0]


def path(method: MethodDescriptor) -> str:
    """`/pharoah.v1.Exchange/GetEpoch`."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _types(method: MethodDescriptor) -> tuple[Any, Any]:
    return message_factory.GetMessageClass(method.input_type), message_factory.GetMessageClass(method.output_type)


def _side(streaming: bool) -> str:
    return "stream" if streaming else "unary"
