"""Messages of `pharoah.v1`, built at import from the descriptor set beside this file.

Works on protobuf 4 to 7. Types for editors and checkers are in the `.pyi` files that `make protos` writes.
"""

from __future__ import annotations

from importlib import resources

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.internal import enum_type_wrapper

_pool = descriptor_pool.Default()
_services: dict[str, ServiceDescriptor] = {}


def _load() -> None:
    files = descriptor_pb2.FileDescriptorSet.FromString(
        resources.files(__package__).joinpath("descriptors.binpb").read_bytes()
    )
    for file in files.file:
        _pool.AddSerializedFile(file.SerializeToString())
    for file in files.file:
        loaded = _pool.FindFileByName(file.name)
        for name, message in loaded.message_types_by_name.items():
            globals()[name] = message_factory.GetMessageClass(message)
        for name, enum in loaded.enum_types_by_name.items():
            globals()[name] = enum_type_wrapper.EnumTypeWrapper(enum)
            globals().update({value.name: value.number for value in enum.values})
        _services.update(loaded.services_by_name)


def service(name: str) -> ServiceDescriptor:
    """Descriptor of a service by its short name, e.g. `Exchange`."""
    return _services[name]


def services() -> list[ServiceDescriptor]:
    """Descriptors of all services."""
    return list(_services.values())


_load()
