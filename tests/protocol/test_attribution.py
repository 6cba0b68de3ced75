"""Who or what caused a failure, by the rules that both sides share."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_protocol.attribution import UNEXPLAINED, Rule, Strength, rule_of, rules
from pharoah_protocol.vocabulary import Attribution, EndState, Outcome

EXAMPLES = [(rule, example) for rule in rules().rules for example in rule.examples]
GOOD = {"name": "n", "attribution": "user", "strength": "cause", "why": "w", "source": "s", "pattern": "x"}


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=lambda value: getattr(value, "name", ""))
def test_each_rule_explains_its_own_examples(rule: Rule, example: str) -> None:
    found = rules().cause(EndState.FAILED, [example])
    assert (found.rule, found.attribution, found.outcome) == (rule.name, rule.attribution, rule.outcome)


def test_every_rule_has_an_example_or_an_end_state_and_a_name_of_its_own() -> None:
    assert all(rule.examples or rule.end_states for rule in rules().rules)
    assert len({rule.name for rule in rules().rules}) == len(rules().rules)


def test_a_run_that_ended_well_has_no_cause_whatever_its_log_holds() -> None:
    log = [example for _, example in EXAMPLES]
    assert rules().cause(EndState.OK, log) == UNEXPLAINED


def raised(*code: str) -> list[str]:
    """What a real Python process prints when it ends with an error."""
    return subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True).stderr.splitlines()


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("open('/no/such/file')", "missing-file"),
        ("import no_such_package", "missing-package"),
        ("from json import no_such_name", "interface-changed"),
        ("assert 1 > 2", "code-of-the-job"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--wrong'])", "wrong-arguments"),
        ("raise MemoryError", "host-memory"),
        ("import os; raise OSError(28, os.strerror(28))", "disk-full"),
        ("import os; raise OSError(5, os.strerror(5), '/data/shard')", "input-output-error"),
        ("import os; raise OSError(5, os.strerror(5), b'/data/shard')", "input-output-error"),
        ("import os; raise OSError(5, os.strerror(5), '/dev/pts/3')", ""),
        ("import os; raise OSError(113, os.strerror(113))", "no-route"),
        ("import urllib.error, os; raise urllib.error.URLError(OSError(101, os.strerror(101)))", "no-route"),
        ("import os; raise OSError(104, os.strerror(104))", "connection-lost"),
        ("import os; raise OSError(107, os.strerror(107))", "connection-lost"),
        ("import os; raise OSError(107, os.strerror(107), '/mnt/data')", "file-server"),
        (
            "import argparse; a = argparse.ArgumentParser(exit_on_error=False); "
            "a.add_argument('--dtype', choices=['bf16']); a.parse_args(['--dtype', 'bf61'])",
            "wrong-arguments",
        ),
        ("raise KeyboardInterrupt", "interrupted"),
        ("{}['key']", "code-of-the-job"),
        ("raise RuntimeError('nobody knows')", ""),
    ],
)
def test_real_errors_of_python_are_explained(code: str, rule: str) -> None:
    assert rules().cause(EndState.FAILED, raised(code)).rule == rule


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import error: the driver is missing", ""),
        ("tonic::transport::Error: transport error", ""),
        ("NCCL WARN NET/IB : Got async event : client reregistration", ""),
        ("NCCL WARN NET/IB : mlx5_0:1 Got non-fatal async event: port active(9)", ""),
        ("NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f): local access violation work queue error", ""),
        ("NET/IB: Got completion from peer 10.0.0.2<40013> with status=IBV_WC_REM_ACCESS_ERR(10)", ""),
        ("NCCL INFO Call to connect returned No route to host, retrying", "no-route"),
        ("[W socket.cpp:663] [c10d] The client socket has failed to connect to [n02]:29500 (errno: 113 - No route to "
         "host).", "no-route"),
        ("google.api_core.exceptions.DeadlineExceeded: 504 Deadline Exceeded", ""),
        ("DeadlineExceeded: 504 Deadline Exceeded", ""),
        ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", ""),
    ],
)  # fmt: skip
def test_words_that_resemble_evidence_are_none(line: str, rule: str) -> None:
    found = rules().cause(EndState.FAILED, [line])
    assert (found.rule, found.attribution) == (rule, Attribution.UNKNOWN)


def test_nobody_else_is_the_culprit_of_device_memory() -> None:
    """In a container the memory of the process itself is listed under a number that it does not know. Other processes
    on its device are often ranks of the same job."""
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. "
    this, other = (
        "Including non-PyTorch memory, this process has 1.00 GiB memory in use. ",
        "Process 7 has 9.00 GiB memory in use. ",
    )
    for listed, rule in ((this, "device-memory"), (other, "device-memory"), (other + this, "device-memory-of-others")):
        found = rules().cause(EndState.FAILED, [error + listed])
        assert (found.rule, found.attribution, found.outcome) == (rule, Attribution.UNKNOWN, Outcome.MEMORY)


def test_a_terminal_that_was_closed_is_no_fault_of_the_node() -> None:
    """A program that writes to it gets the error of a storage device that fails."""
    keys, screen = pty.openpty()
    os.close(keys)
    code = "import os; os.write(1, b'loss')"
    done = subprocess.run([sys.executable, "-c", code], stdout=screen, stderr=subprocess.PIPE, text=True)
    os.close(screen)
    assert done.stderr.splitlines()[-1] == "OSError: [Errno 5] Input/output error"
    assert rules().cause(EndState.FAILED, done.stderr.splitlines()) == UNEXPLAINED
    for line in ("train.sh: line 3: echo: write error: Input/output error", "tee: /dev/tty: Input/output error"):
        assert rules().cause(EndState.FAILED, [line]) == UNEXPLAINED


def test_real_errors_of_torch_are_explained() -> None:
    shapes = raised("import torch", "torch.ones(2, 3) @ torch.ones(4, 5)")
    assert rules().cause(EndState.FAILED, shapes).attribution is Attribution.USER
    memory = raised("import torch", "torch.empty(1 << 60)")
    found = rules().cause(EndState.FAILED, memory)
    assert (found.rule, found.outcome) == ("host-memory", Outcome.MEMORY)


def test_an_assertion_that_a_file_exists_is_a_missing_file() -> None:
    log = ["Traceback (most recent call last):", "    assert os.path.isfile(name), name", "AssertionError: train.bin"]
    assert rules().cause(EndState.FAILED, log).rule == "missing-file"


def test_evidence_wins_over_causes_and_causes_over_symptoms() -> None:
    symptom = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"
    cause = "ValueError: batch"
    evidence = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    assert rules().cause(EndState.FAILED, [symptom]).attribution is Attribution.UNKNOWN
    assert rules().cause(EndState.FAILED, [symptom, cause]).attribution is Attribution.USER
    assert rules().cause(EndState.FAILED, [symptom, cause, evidence]).attribution is Attribution.NODE


def test_of_two_causes_the_first_one_counts() -> None:
    memory, then = "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB", "KeyError: 'state'"
    assert rules().cause(EndState.FAILED, [memory, then]).rule == "device-memory"
    assert rules().cause(EndState.FAILED, [then, memory]).rule == "code-of-the-job"


@pytest.mark.parametrize(
    ("status", "attribution"),
    [(127, Attribution.USER), (132, Attribution.SOFTWARE), (137, Attribution.UNKNOWN), (143, Attribution.USER)],
)
def test_an_exit_status_speaks_where_no_line_does(status: int, attribution: Attribution) -> None:
    assert rules().cause(EndState.FAILED, ["step 17"], status).attribution is attribution
    assert (
        rules().cause(EndState.FAILED, ["OSError: [Errno 5] Input/output error: '/data/shard'"], status).attribution
        is Attribution.NODE
    )


@pytest.mark.parametrize("state", [state for state in EndState if state not in (EndState.OK, EndState.FAILED)])
def test_every_other_end_state_speaks_for_itself(state: EndState) -> None:
    assert rules().cause(state, ["KeyError: 'x'"]).line == ""
    assert rules().cause(state).rule


@given(st.lists(st.text(alphabet="abc 0123456789.:", max_size=30), max_size=5), st.sampled_from(EXAMPLES))
def test_lines_that_say_nothing_change_nothing(noise: list[str], known: tuple[Rule, str]) -> None:
    rule, example = known
    assert rules().cause(EndState.FAILED, [*noise, example, *noise]).rule == rule.name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pattern": "("}, "rule n: pattern"),
        ({"why": ""}, "why and source"),
        ({"attribution": "nobody"}, "nobody"),
        ({"strength": None}, "None"),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        rule_of({**GOOD, **change})
    with pytest.raises(ValueError, match="why is missing"):
        rule_of({key: value for key, value in GOOD.items() if key != "why"})
    with pytest.raises(ValueError, match="needs a pattern"):
        rule_of({key: value for key, value in GOOD.items() if key != "pattern"})


def test_a_pattern_may_be_a_list_of_which_one_is_enough() -> None:
    both = rule_of({**GOOD, "pattern": ["one", "other$"]})
    assert both.explains("one more") and both.explains("an other") and not both.explains("another one"[:7] + "x")


def test_strengths_are_in_the_order_in_which_they_win() -> None:
    assert list(Strength) == [Strength.EVIDENCE, Strength.CAUSE, Strength.SYMPTOM]
