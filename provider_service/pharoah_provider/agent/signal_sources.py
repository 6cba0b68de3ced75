"""Where the signals of a node come from while its agent runs: the driver or an exporter, and the kernel's log."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pharoah_provider.agent.exporter_source import ExporterAddress, ExporterSource
from pharoah_provider.agent.kernel_log import KERNEL_LOG, KernelLog
from pharoah_provider.agent.signals._devices import devices_from
from pharoah_provider.agent.signals._nvml import gpu_addresses
from pharoah_provider.agent.signals._xids import watching
from pharoah_provider.agent.xid_catalogue import XidCatalogue, XidError, xid_catalogue
from pharoah_provider.agent.xid_events import XidEvents
from pharoah_serving.errors import ProviderError
from pharoah_system.trusted_paths import UntrustedPathError, list_trusted_users

log = logging.getLogger("pharoah.agent")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options by which an operator says where signals come from."""
    parser.add_argument("--metrics-from", type=_exporter, metavar="URL",
                        help="read GPUs from an exporter on this node instead of the driver, such as "
                        "http://127.0.0.1:9400/metrics of dcgm-exporter")  # fmt: skip
    parser.add_argument("--xid-overrides", type=_catalogue, metavar="FILE", default=None,
                        help="meaning of the GPU driver's error numbers, as TOML (docs/provider/nodes.md)")  # fmt: skip


@contextmanager
def signal_sources(arguments: argparse.Namespace) -> Iterator[None]:
    """Read signals as the options say inside this scope. Errors that the kernel's log had before count: an agent that
    is started again must not forget the trouble of the last hour. Raises ProviderError for users that are not there.
    """
    with ExitStack() as scope:
        if address := arguments.metrics_from:
            fetch = partial(address.fetch, _check_users(arguments.service_users))
            scope.enter_context(devices_from(ExporterSource(fetch, address.url)))
        try:
            kernel_log = scope.enter_context(KernelLog.from_path())
        except OSError as error:
            log.warning("%s: %s: errors of GPUs in the kernel's log are not watched", KERNEL_LOG, error.strerror)
            scope.enter_context(watching(None, f"{KERNEL_LOG}: {error.strerror}"))
        else:
            events = XidEvents(kernel_log, arguments.xid_overrides or xid_catalogue(), gpu_addresses)
            while events.read():
                pass
            scope.enter_context(watching(events))
        yield


def _check_users(service_users: str) -> str:
    try:
        list_trusted_users(service_users)
    except UntrustedPathError as error:
        raise ProviderError(f"--service-users: {error}") from None
    return service_users


def _exporter(text: str) -> ExporterAddress:
    try:
        return ExporterAddress.from_text(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _catalogue(text: str) -> XidCatalogue:
    try:
        return xid_catalogue().overridden(Path(text))
    except XidError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
