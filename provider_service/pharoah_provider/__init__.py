"""The provider's side: services, store, learning, monitoring, and the agent that stands on its nodes.

servicers (decode, call, encode) → exchange / monitoring / learning / campaigns → store and models. Models are pure.
SQL stops at `store`, protobuf at `services`.
"""
