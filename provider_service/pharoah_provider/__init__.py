"""The provider's side: services, store, learning, monitoring, and the agent that stands on its nodes.

servicers (decode, call, encode) → exchange / monitoring / learning / campaigns → store and models. Models are pure.
SQL stops at `store`, protobuf at `services`.
"""

from pharoah_protocol import grpc_log

grpc_log.errors_only()
