"""The rules of attribution read whole logs: with prefixes of launchers, colours, warnings and several errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pharoah_protocol.attribution import UNEXPLAINED, rules
from pharoah_protocol.vocabulary import Attribution, EndState

TRACEBACK = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 3, in main'
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def rule_of(*log: str) -> str:
    """The rule that explains a failure with this log."""
    return rules().cause(EndState.FAILED, log).rule


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank0]: ",
        "rank0: ",
        "[default0]:[rank0]: ",
        "[rank0]:[rank0]: ",
        "[trainer3]:",
        "3: ",
        " 3: [rank3]: ",
        "[1,0]<stderr>:",
        "[0]<stderr>:",
        "(pid=17, ip=10.0.0.2) ",
        "\x1b[36m(RayTrainWorker pid=17)\x1b[0m ",
        "[pod/train-0/main] ",
        "2024-01-01T00:00:00.123456789Z ",
        "2024-01-01T00:00:00.123456789+01:00 stderr F [rank1]: ",
        "[2024-01-01 00:00:00,123] ",
    ],
)
def test_prefixes_of_launchers_hide_no_error(prefix: str) -> None:
    found = rules().cause(EndState.FAILED, [f"{prefix}KeyError: 'lr'"])
    assert (found.rule, found.line) == ("code-of-the-job", "KeyError: 'lr'")
    assert rule_of(f"{prefix}MemoryError") == "host-memory"
    assert rule_of(f"{prefix}Killed") == "killed"
    log = ["cp: cannot stat 'old.pt': No such file or directory", TRACEBACK, FRAME, MEMORY]
    assert rule_of(*(prefix + line for line in log)) == "device-memory"


@pytest.mark.parametrize("line", ["    KeyError: 'lr'", "[rank0]:     KeyError: 'lr'", "step 3: KeyError: 'lr'"])
def test_what_a_program_itself_puts_before_an_error_is_no_prefix(line: str) -> None:
    """A line of the source is indented, and a program logs errors that it recovers from."""
    assert rules().cause(EndState.FAILED, [line]) == UNEXPLAINED


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[1;35mKeyError\x1b[0m: \x1b[35m'lr'\x1b[0m",
        "\x1b[31m[rank0]: \x1b[0m\x1b[1mKeyError: 'lr'\x1b[0m",
        "\x1b]8;;file:///train.py\x1b\\KeyError\x1b]8;;\x1b\\: 'lr'",
    ],
)
def test_colours_and_links_of_a_terminal_hide_no_error(line: str) -> None:
    found = rules().cause(EndState.FAILED, [line])
    assert (found.rule, found.line) == ("code-of-the-job", "KeyError: 'lr'")


WARNINGS = [
    "/opt/torchvision/io/image.py:13: UserWarning: Failed to load image Python extension: 'libpng16.so.16: cannot open "
    "shared object file: No such file or directory'",
    "WARNING:root:cache.json: No such file or directory",
    "[2024-01-01 00:00:00,123] [WARNING] [cache.py:7] cache.json: No such file or directory",
    "2024-01-01 00:00:00.123 | WARNING  | cache:load:7 - cache.json: No such file or directory",
    "W cuda/dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot "
    "open shared object file: No such file or directory",
    "set_mempolicy: Operation not permitted",
    "[rank0]: mbind: Operation not permitted",
]


@pytest.mark.parametrize("warning", WARNINGS)
def test_a_warning_is_no_cause(warning: str) -> None:
    code = "  warn(f'{name}: No such file or directory')"
    assert rules().cause(EndState.FAILED, [warning, code, "RuntimeError: nobody knows"]) == UNEXPLAINED
    assert rule_of(warning, MEMORY) == "device-memory"


def test_a_real_warning_of_python_is_no_cause(tmp_path: Path) -> None:
    """Below a warning Python prints the line of the code that warns."""
    script = tmp_path / "train.py"
    script.write_text(
        "import logging, warnings\n"
        "warnings.warn('cache.json: No such file or directory')\n"
        "logging.warning('cache.json: No such file or directory')\n"
        "raise RuntimeError('nobody knows')\n"
    )
    log = subprocess.run([sys.executable, str(script)], capture_output=True, text=True).stderr.splitlines()
    assert sum("No such file" in line for line in log) == 3
    assert rules().cause(EndState.FAILED, log) == UNEXPLAINED


def test_a_warning_is_evidence_where_it_states_the_cause_itself() -> None:
    warning = "train.py:3: RuntimeWarning: CUDA error: uncorrectable ECC error encountered"
    assert rules().cause(EndState.FAILED, [warning, MEMORY]).attribution is Attribution.NODE


def test_the_warning_in_which_torch_says_why_it_finds_no_device_is_a_cause() -> None:
    warning = (
        "/opt/torch/cuda/__init__.py:129: UserWarning: CUDA initialization: The NVIDIA driver on your system is too "
        "old (found version 11040)."
    )
    assert rule_of(warning) == "driver-too-old"


def test_an_error_that_is_a_warning_by_its_type_has_ended_the_process() -> None:
    """Python makes errors of warnings where it is started with `-W error`."""
    assert rule_of(TRACEBACK, FRAME, "UserWarning: cache.json: No such file or directory") == "missing-file"


def test_of_two_causes_the_first_one_below_a_traceback_counts() -> None:
    harmless = "cp: cannot stat 'old.pt': No such file or directory"
    assert rule_of(harmless, MEMORY) == "missing-file"
    assert rule_of(harmless, TRACEBACK, FRAME, MEMORY) == "device-memory"
    assert rule_of(harmless, TRACEBACK, FRAME, MEMORY, "", TRACEBACK, FRAME, "KeyError: 'state'") == "device-memory"


def test_a_cause_above_a_traceback_counts_where_none_is_below() -> None:
    """A launcher ends with an error of its own when a process has ended with one."""
    launcher = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "
    assert rule_of("train.py: error: unrecognized arguments: --lrr", TRACEBACK, FRAME, launcher) == "wrong-arguments"
    lost = "RuntimeError: Connection reset by peer"
    assert rule_of("terminate called after throwing 'std::bad_alloc'", TRACEBACK, FRAME, lost) == "host-memory"


def test_evidence_above_a_traceback_wins_over_the_error_below_it() -> None:
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=17, GPU has fallen off the bus."
    assert rules().cause(EndState.FAILED, [xid, TRACEBACK, FRAME, MEMORY]).attribution is Attribution.NODE


@pytest.mark.parametrize("repeated", ["iVBORw0KGgo/", '"/data/1.jpg",'], ids=["base64", "JSON"])
def test_a_long_line_does_not_cost_the_square_of_its_length(repeated: str) -> None:
    """The rules look for paths. A picture in base64 has a slash in each 64 characters, and a list of files two."""
    assert rules().cause(EndState.FAILED, [repeated * 100_000]) == UNEXPLAINED


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/train'",
        "NotADirectoryError: [Errno 20] Not a directory: '/data/train.tar'",
        "FileNotFoundError: Couldn't find any class folder in /data/train.",
        "OSError: ./model is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        "OSError: Unable to open file (unable to open file: name = 'x.h5', errno = 2, error message = 'No such file or "
        "directory', flags = 0, o_flags = 0)",
        "azure.core.exceptions.ResourceNotFoundError: The specified blob does not exist.",
    ],
)
def test_what_a_loader_does_not_find_is_a_missing_file(line: str) -> None:
    assert rules().cause(EndState.FAILED, [line]).attribution is Attribution.USER
    assert rule_of(line) == "missing-file"


@pytest.mark.parametrize(
    ("line", "attribution"),
    [
        ("OSError: [Errno 116] Stale file handle: '/data/train'", Attribution.PLATFORM),
        ("OSError: [Errno 107] Transport endpoint is not connected: '/data/train'", Attribution.PLATFORM),
        ("OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/data/train'", Attribution.PLATFORM),
        ("OSError: [Errno 5] Input/output error: '/data/train'", Attribution.NODE),
    ],
)
def test_a_mount_or_a_disk_that_is_gone_is_no_missing_file(line: str, attribution: Attribution) -> None:
    assert rules().cause(EndState.FAILED, [line]).attribution is attribution


@pytest.mark.parametrize(
    "line",
    [
        "Checkpoint file last.pt does not exist, training from scratch",
        "GET https://example.org/optional.json -> 404, using the default",
        "Gradient overflow: found inf in gradients, skipping step",
        "could not find a config.yaml, creating one",
        "slurmstepd: error: *** STEP 17.0 ON n01 CANCELLED AT 2024-01-01T00:00:00 ***",
        "the store has 3 files and can hold 40 files",
        "waiting for a token; please wait",
    ],
)
def test_what_a_program_only_mentions_is_no_cause(line: str) -> None:
    assert rules().cause(EndState.FAILED, [line]) == UNEXPLAINED


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("unheard.of.package.errors.ObjectNotFoundError: x", "missing-file"),
        ("unheard.of.package.ConfigError: x", "wrong-settings"),
        ("unheard.of.package.AuthenticationFailedException: x", "permission"),
        ("unheard.of.package.ServerNotFoundError: x", ""),
        ("unheard.of.package.WorkerNotFoundError: x", ""),
        ("unheard.of.package.ConnectionError: x", ""),
        ("unheard.of.package.HTTPError: 503 Service Unavailable", "server-outside"),
        ("unheard.of.package.HTTPError: 404 Not Found", "missing-file"),
        ("unheard.of.package.HTTPError: 401 Unauthorized", "permission"),
    ],
)
def test_names_of_exceptions_and_statuses_speak_for_packages_that_nobody_listed(line: str, rule: str) -> None:
    assert rule_of(line) == rule


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("RuntimeError: running_var should contain 8 elements not 4", "refused-by-torch"),
        ("RuntimeError: CUDA error: the launch of a tensor is not supported", ""),
        ("RuntimeError: the input stream is not expected to end: EOF", ""),
        ("RuntimeError: nobody knows", ""),
    ],
)
def test_a_check_of_torch_about_its_arguments_is_the_job_s_own(line: str, rule: str) -> None:
    assert rule_of(line) == rule
