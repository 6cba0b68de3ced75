"""Errors of a server; `pharoah_serving.call_guard.STATUS` maps each to one gRPC status.

ProviderError
├── Invalid      a request that cannot be served; names the field     INVALID_ARGUMENT
├── Unknown      something that does not exist                        NOT_FOUND
├── NotReady     something that must happen first                     FAILED_PRECONDITION
├── Exhausted    a quota is used up                                   RESOURCE_EXHAUSTED
├── Refused      not allowed; gives no reason                         PERMISSION_DENIED
└── StoreError   the database failed; nothing was acknowledged        UNAVAILABLE
"""


class ProviderError(Exception):
    """Base of all errors of a server."""


class Invalid(ProviderError):
    """A request that cannot be served; the message names the field."""


class Unknown(ProviderError):
    """Something that does not exist."""


class NotReady(ProviderError):
    """Something that must happen first."""


class Exhausted(ProviderError):
    """A quota is used up."""


class Refused(ProviderError):
    """Not allowed."""


class StoreError(ProviderError):
    """The database or a file failed. Nothing that failed was acknowledged."""
