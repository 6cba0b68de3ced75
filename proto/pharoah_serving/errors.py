"""Errors of the provider; `services.translate` maps each to one gRPC status.

ProviderError
├── Invalid      a request nobody can serve; names the field          INVALID_ARGUMENT
├── Unknown      something that does not exist                        NOT_FOUND
├── NotReady     something that must happen first                     FAILED_PRECONDITION
├── Exhausted    a quota is used up                                   RESOURCE_EXHAUSTED
├── Refused      not allowed; says nothing more                       PERMISSION_DENIED
└── StoreError   the database did not take it; nothing was acknowledged   UNAVAILABLE
"""


class ProviderError(Exception):
    """Base of all errors of this package."""


class Invalid(ProviderError):
    """A request nobody can serve; the message names the field."""


class Unknown(ProviderError):
    """Something that does not exist."""


class NotReady(ProviderError):
    """Something that must happen first."""


class Exhausted(ProviderError):
    """A quota is used up."""


class Refused(ProviderError):
    """Not allowed."""


class StoreError(ProviderError):
    """The database did not take it. Nothing that failed was acknowledged."""
