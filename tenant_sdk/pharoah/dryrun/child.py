"""The child's side of a dry run: `python -P -m pharoah.dryrun.child FILE-DESCRIPTOR PROGRAM`.

Before the sandbox is closed, only what the sandbox needs is imported: a thread of a library would prevent it. The
child reports each thing at once, as one JSON line, because a script may swallow any exception.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun.audit_hook import SideEffect, die_with_parent, enter_sandbox, install_audit_hook
from pharoah.dryrun.command_line import Launcher, Program
from pharoah.dryrun.environment import MITIGATION, RECORD_CODE
from pharoah.dryrun.result import FINAL, PROVISIONAL, REASON, DryRun

_LARGEST_REASON_CHARACTERS = 300


def run(results: int, prepare: Callable[[], Callable[[], object]]) -> None:
    """Run the program that `prepare` returns on fake tensors until its step is over. Never returns and never raises."""
    try:
        die_with_parent()
        _detach_files(results)
        _step(prepare, lambda kind, content: _report(results, kind, content), enter_sandbox())
    except SideEffect:
        pass  # the hook has reported it
    except UnknownReason as reason:
        _report(results, REASON, str(reason))
    except BaseException as fault:  # noqa: BLE001 - nothing may leave the child
        _report(results, REASON, _reason(fault))
    finally:
        os._exit(0)


def _detach_files(results: int) -> None:
    """Point all other open files to /dev/null: a forked child inherits the job's output, logs and connections."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in (results, nothing):
            try:
                os.dup2(nothing, int(name))
            except OSError:
                pass  # the descriptor that listed them


def _report(results: int, kind: str, content: str) -> None:
    left = json.dumps({kind: content}).encode() + b"\n"
    try:
        while left:
            left = left[os.write(results, left) :]
    except OSError:
        pass  # the parent has closed the pipe


def _step(prepare: Callable[[], Callable[[], object]], report: Callable[[str, str], None], no_sandbox: str) -> None:
    """Run a program until its step is over. `no_sandbox` is the reason why there is no sandbox, empty with one."""
    from pharoah.dryrun.executed_code import ExecutedCode
    from pharoah.dryrun.fake_tensors import fake_step
    from pharoah.dryrun.mitigations import apply_mitigation
    from pharoah.dryrun.placeholder_values import DataDependentBranch
    from pharoah.dryrun.step_boundary import Finished

    program = prepare()
    code = ExecutedCode() if os.environ.get(RECORD_CODE) else None

    def side_effect(what: str) -> None:
        hint = f"; this machine does not allow a sandbox: {no_sandbox}" if no_sandbox else ""
        report(REASON, f"side effect before the first step: {what}{hint}")

    def step_seen(found: DryRun, final: bool) -> None:
        fingerprint = replace(found.fingerprint, code=code.digests() if code else {})
        report(FINAL if final else PROVISIONAL, found._replace(fingerprint=fingerprint).to_json())

    try:
        with fake_step(step_seen, lambda reason: report(REASON, reason)):
            install_audit_hook(side_effect, sandboxed=not no_sandbox)
            if change := os.environ.get(MITIGATION):
                apply_mitigation(Mitigation.from_json(change))
            if code:
                code.start()
            program()
        report(REASON, "the script ended before an optimizer stepped")
    except (Finished, DataDependentBranch):
        pass  # reported when it happened
    except SystemExit as exit_:
        report(REASON, f"the script exited with {exit_.code} before an optimizer stepped")


def _reason(fault: BaseException) -> str:
    """One line: what was raised, and where in the user's own files."""
    from pharoah.dryrun.placeholder_values import place

    first_line = str(fault).strip().partition("\n")[0][:_LARGEST_REASON_CHARACTERS]
    return f"{type(fault).__name__}: {first_line} ({place(fault.__traceback__)})"


def prepared(program: Program) -> Callable[[], Callable[[], object]]:
    """What `run` needs to run the first rank of a job. A launcher's arguments are parsed later, as that takes torch."""
    if program.launcher is Launcher.NONE:
        os.environ.update(program.rank_environment())
        script = _script(program.arguments)
        return lambda: script

    def parse() -> Callable[[], object]:
        from pharoah.dryrun.torch_launcher import without_launcher

        direct = without_launcher(program)
        os.environ.update(direct.rank_environment())
        return _script(direct.arguments)

    return parse


def _script(arguments: Sequence[str]) -> Callable[[], object]:
    import runpy

    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, str(Path.cwd()))
        return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    return lambda: runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    run(int(sys.argv[1]), prepared(Program.from_json(sys.argv[2])))
