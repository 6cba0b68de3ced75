"""Errors that the driver of GPUs writes into the kernel's log, and what they mean."""

from __future__ import annotations

import ast
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pytest

from pharoah_benchmarks.micro import Resource
from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.agent import cli, kernel_log
from pharoah_provider.agent.kernel_log import KERNEL_LOG, KernelLog
from pharoah_provider.agent.signals import AGENT_SIGNALS, NotOnThisNode
from pharoah_provider.agent.signals._xids import watching
from pharoah_provider.agent.xid_catalogue import XidBucket, XidCatalogue, XidCause, XidError, xid_catalogue
from pharoah_provider.agent.xid_events import TROUBLE_SECONDS, XidEvents

LOST = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."
NAMES = {"0000:3b:00": "gpu0", "0000:5e:00": "gpu1"}


@dataclass
class Kernel:
    """Writes records as the kernel does: a socket keeps their borders, and a reader never waits."""

    end: socket.socket
    number: int = 0
    now: float = 1000.0
    """Seconds since the boot."""

    def says(self, text: str, priority: int = 3) -> None:
        self.end.send(f"{priority},{self.number},{int(self.now * 1e6)},-;{text}\n SUBSYSTEM=pci\n".encode())
        self.number += 1


@dataclass
class Opened:
    kernel: Kernel
    log: KernelLog
    events: XidEvents


@pytest.fixture
def opened() -> Iterator[Opened]:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs, KernelLog(ours.detach()) as log:
        kernel = Kernel(theirs)
        yield Opened(kernel, log, XidEvents(log, xid_catalogue(), lambda: NAMES, clock=lambda: kernel.now))


# the log


def test_a_record_has_its_first_line_and_a_reader_without_news_does_not_wait(opened: Opened) -> None:
    assert opened.log.records() == []
    opened.kernel.says("first")
    opened.kernel.says("second")
    assert [record.text for record in opened.log.records()] == ["first", "second"]
    assert opened.log.records() == [] and opened.log.lost == 0


def test_records_that_were_overwritten_are_counted(opened: Opened) -> None:
    opened.kernel.says("seen")
    opened.log.records()
    opened.kernel.number += 7
    opened.kernel.says("seen again")
    assert [record.text for record in opened.log.records()] == ["seen again"]
    assert opened.log.lost == 7


def test_a_reader_that_was_too_slow_goes_on_with_what_is_left(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers EPIPE once, and then with the oldest record that it still has."""
    read, failures = os.read, [BrokenPipeError()]

    def overwritten(descriptor: int, size: int) -> bytes:
        if failures:
            raise failures.pop()
        return read(descriptor, size)

    opened.kernel.says(LOST)
    monkeypatch.setattr(os, "read", overwritten)
    assert [record.text for record in opened.log.records()] == [LOST]


@pytest.mark.parametrize("junk", [b"x", b"3,1;no time", b"a,b,c,-;text", b"3,1,2,-", b"\xff\xfe;", b"-3,1,5,-;x"])
def test_what_is_no_record_is_skipped(opened: Opened, junk: bytes) -> None:
    opened.kernel.end.send(junk)
    opened.kernel.says("whole")
    assert [record.text for record in opened.log.records()] == ["whole"]


def test_a_program_cannot_write_an_error_into_the_log(opened: Opened) -> None:
    user_facility = 1 << 3
    opened.kernel.says(LOST, priority=user_facility | 3)
    opened.events.read()
    assert not opened.events.recent()


@pytest.mark.skipif(not os.access(KERNEL_LOG, os.R_OK), reason="this user may not read the kernel's log")
def test_the_log_of_this_machine_can_be_read_without_waiting() -> None:
    try:
        log = KernelLog.from_path()
    except OSError as error:
        pytest.skip(f"the kernel's log cannot be opened: {error}")
    with log:
        records = log.records()
    assert all(earlier.number < later.number for earlier, later in pairwise(records))
    assert all(0 <= record.at_seconds <= time.monotonic() + 60 for record in records)


# events and signals


def test_an_error_is_of_the_gpu_at_that_address(opened: Opened) -> None:
    opened.kernel.says(LOST)
    opened.kernel.says("NVRM: Xid (PCI:0000:5E:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception")
    opened.kernel.says("NVRM: Xid (0000:99:00): 31, Ch 0000000b, engmask 00000120")
    opened.kernel.says("NVRM: Xid (PCI:0000:5e:00 GPU-I:05): 94, pid=7, name=python, Contained: SM (0x1)")
    opened.kernel.says("NVRM: Xid (PCI:0000:5e:00 GPU-I:05 GPU-CI:00): 13, pid=7, name=python, Graphics Exception")
    opened.kernel.says("NVRM: loading NVIDIA UNIX x86_64 Kernel Module")
    opened.events.read()
    found = [(event.device, event.xid.code) for event in opened.events.recent()]
    assert found == [("gpu0", 79), ("gpu1", 13), ("pci-0000-99-00", 31), ("gpu1", 94), ("gpu1", 13)]


FORGED = (
    'EXT4-fs (loop0): Unrecognized mount option "{}" or missing value',
    "/dev/{}: Can't open blockdev",
    "python[77]: segfault at 0 ip 0 sp 0 error 4 in {}[400000+1000]",
    " {}",
    "x{}",
    'audit: type=1701 comm="{}"',
)
"""Messages of the kernel into which any user can put a text."""


@pytest.mark.parametrize("message", FORGED)
def test_a_text_of_a_user_within_a_message_of_the_kernel_is_no_error(opened: Opened, message: str) -> None:
    opened.kernel.says(message.format(LOST))
    opened.kernel.says(LOST, priority=11)  # a program wrote it (facility 1, syslog(3))
    # 15 characters are what a process may have as its name, which the kernel puts first.
    name, library = "NVRM: Xid (0:0:", "x): 79, y"
    opened.kernel.says(f"{name}[77]: segfault at 0 ip 0 sp 0 error 4 in {library}[400000+1000]")
    opened.kernel.says(f"{name[:12]}[77]: segfault at 0 ip 0 sp 0 error 4 in {library}[400000+1000]")
    opened.events.read()
    assert opened.events.recent() == []


def test_what_reads_the_kernels_log_reads_it_by_the_rule_about_drivers() -> None:
    """A reader that looks at the text of a record itself would have to know the rule."""
    folder = Path(kernel_log.__file__).parent
    readers = [path for path in folder.rglob("*.py") if "kernel_log import" in path.read_text()]
    assert "xid_events.py" in {path.name for path in readers}
    for path in readers:
        looked_at = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        assert not [node for node in looked_at if node.attr == "text"], f"{path} reads records without driver_message"


def test_names_of_gpus_are_learned_before_one_is_lost(opened: Opened) -> None:
    """The driver is loaded after the agent has started; then a GPU leaves the bus and has no address any more."""
    known = dict[str, str]()
    events = XidEvents(opened.log, xid_catalogue(), lambda: known, clock=lambda: opened.kernel.now)
    opened.kernel.says(LOST.replace("79", "13"))
    events.read()
    known.update(NAMES)
    events.read()
    known.clear()
    opened.kernel.says(LOST)
    events.read()
    assert [event.device for event in events.recent()] == ["pci-0000-3b-00", "gpu0"]


def test_only_errors_of_the_hardware_are_trouble_that_leaves_the_node(opened: Opened) -> None:
    def shown(name: str) -> dict[str, float]:
        return {reading.device: reading.value for reading in AGENT_SIGNALS[name].read()}

    with watching(opened.events):
        opened.kernel.says(LOST.replace("79", "31"))
        assert shown("gpu_hardware_errors") == {"gpu0": 0.0}
        assert shown("gpu_application_error_count") == {"gpu0": 1}
        opened.kernel.says(LOST.replace("79", "63"))
        assert shown("gpu_hardware_errors") == {"gpu0": 0.0}, "what is to be ignored is no trouble"
        assert shown("gpu_hardware_error_count") == {"gpu0": 1}
        opened.kernel.says(LOST)
        opened.kernel.says(LOST.replace("79", "9999"))
        assert shown("gpu_hardware_errors") == {"gpu0": 1.0}
        assert shown("gpu_hardware_error_count") == {"gpu0": 2}
        assert shown("gpu_driver_error_count") == {"gpu0": 1}, "a number that nobody knows"
        opened.kernel.now += TROUBLE_SECONDS
        assert shown("gpu_hardware_errors") == {"gpu0": 0.0}


def test_a_node_whose_log_cannot_be_read_says_why() -> None:
    with watching(None, "/dev/kmsg: Permission denied"), pytest.raises(NotOnThisNode, match="Permission denied"):
        list(AGENT_SIGNALS["gpu_hardware_errors"].read())


# the catalogue


def test_numbers_that_the_rules_of_causes_lay_on_the_node_are_hardware_in_the_catalogue() -> None:
    """Another part of the product names these numbers (`pharoah_protocol.attribution`): both must say the same."""
    catalogue, causes = xid_catalogue(), rules()
    named = {
        code
        for code in catalogue.entries
        if causes.cause(EndState.FAILED, [f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1"]).attribution is Attribution.NODE
    }
    assert named >= {48, 79, 95}
    firmware = {119, 120}  # the GPU's system processor does not answer: software of the node, whose GPU must be reset
    assert {catalogue.find(code).cause for code in named - firmware} == {XidCause.HARDWARE}


def test_published_numbers_have_the_bucket_of_nvidias_catalogue() -> None:
    """docs.nvidia.com/deploy/xid-errors, read on 2026-11-25."""
    buckets = {13: "RESTART_APP", 31: "RESTART_APP", 43: "IGNORE", 63: "IGNORE", 64: "RESET_GPU", 79: "RESTART_BM",
               92: "IGNORE", 94: "RESTART_APP", 95: "RESET_GPU", 119: "RESET_GPU", 140: "RESET_GPU"}  # fmt: skip
    catalogue = xid_catalogue()
    assert {code: catalogue.find(code).bucket for code in buckets} == buckets
    assert all(catalogue.find(code).cause is XidCause.APPLICATION for code in (13, 31, 43))


def test_a_site_overrides_single_fields_and_adds_numbers(tmp_path: Path) -> None:
    path = tmp_path / "xids.toml"
    path.write_text("""
[[xid]]
code = 79
cause = "software"

[[xid]]
code = 777
meaning = "ours"
resource = "host_link"
cause = "hardware"
bucket = "RESET_GPU"
advice = "Call us."
""")
    before = xid_catalogue()
    after = before.overridden(path)
    assert after.find(79) == replace(before.find(79), cause=XidCause.SOFTWARE)
    assert after.find(777).resource is Resource.HOST_LINK and after.find(777).bucket is XidBucket.RESET_GPU
    assert after.entries.keys() == before.entries.keys() | {777}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[xid]", "not TOML"),
        ("", r"\[\[xid\]\]"),
        ("xid = 3", r"\[\[xid\]\]"),
        ("xid = [3]", "entry 1: expected a table"),
        ("[[xid]]\ncode = '79'", "entry 1: code: expected a whole number"),
        ("[[xid]]\ncode = true", "entry 1: code"),
        ("[[xid]]\ncode = 79\nreason = 'x'", r"entry 1 \(code 79\): reason: no such field"),
        ("[[xid]]\ncode = 777", r"entry 1 \(code 777\): advice, bucket, cause, meaning, resource: missing"),
        ("[[xid]]\ncode = 79\ncause = 'bad luck'", "cause: 'bad luck' is not one of: hardware, application"),
        ("[[xid]]\ncode = 79\ncause = 7", "cause: 7 is not one of"),
        ("[[xid]]\ncode = 79\nadvice = ''", "advice: expected a text"),
        ("[[xid]]\ncode = 79\n[[xid]]\ncode = 79", "entry 2: code: 79 has an entry already"),
    ],
)
def test_a_file_of_overrides_that_cannot_be_used_names_entry_and_field(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "xids.toml"
    path.write_text(text)
    with pytest.raises(XidError, match=named) as error:
        XidCatalogue(xid_catalogue().entries).overridden(path)
    assert str(path) in str(error.value)


def test_the_command_names_the_option_of_a_file_that_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["signals", "--xid-overrides", str(tmp_path / "none.toml")])
    assert "--xid-overrides" in (said := capsys.readouterr().err) and "No such file" in said
