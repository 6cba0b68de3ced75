"""The child's side of a dry run: the module `pharoah.dryrun.child`, with FILE-DESCRIPTOR PROGRAM SECONDS SANDBOX.

It runs inside a sandbox: `pharoah.dryrun.enter` has started it, or the job has forked and `run` enters one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pharoah.cost.mitigation import Mitigation
from pharoah.dryrun.audit_hook import install_audit_hook
from pharoah.dryrun.enter import enter
from pharoah.dryrun.environment import EXTENSIONS, MAIL, MITIGATION, PROCESSES, RECORD_CODE
from pharoah.dryrun.late_path import search_as_the_job
from pharoah.dryrun.reports import ENDED, Report, ReportKind, reporting
from pharoah.dryrun.result import DryRun
from pharoah.dryrun.sandbox_mode import SCRATCH_FOLDER, Sandbox
from pharoah.dryrun.shared_memory import copy_shared_memory
from pharoah.dryrun.shell_commands import InsideShell, run_shell
from pharoah.launchers import Program, launchers
from pharoah.torch_releases import doubts
from pharoah_system.parent_process import end_with_parent


def run(
    results: int, prepare: Callable[[], Callable[[], object]], seconds: float, sandbox: Sandbox | None = None
) -> None:
    """Run the program that `prepare` returns on fake tensors until its step is over. Never returns and never raises.

    `seconds` is the time after which the parent ends this process. Without a `sandbox` that this process is in already,
    it is a fork of the job: it enters a sandbox, and gets copies of the memory that the job shares with others.
    """
    report, deadline = Report(results), time.monotonic() + seconds
    with reporting(report):
        end_with_parent()
        if sandbox is None:
            copy_shared_memory()
        walls = sandbox or enter(results, keeps_program=True)
        if not walls.is_isolated:
            # TMPDIR stays as it is: scripts read data that a scheduler has put there.
            tempfile.tempdir = os.environ.get(SCRATCH_FOLDER) or None
        search_as_the_job()
        _step(prepare, report, walls, deadline)


def _step(prepare: Callable[[], Callable[[], object]], report: Report, sandbox: Sandbox, deadline: float) -> None:
    """Run a program until its step is over."""
    from pharoah.dryrun.executed_code import ExecutedCode
    from pharoah.dryrun.exploration import DataDependentBranch, Explorer
    from pharoah.dryrun.extensions import missing_extension, substitute
    from pharoah.dryrun.fake_tensors import fake_step
    from pharoah.dryrun.mitigations import apply_mitigation
    from pharoah.dryrun.pipeline_stages import open_mail, with_next_stage
    from pharoah.dryrun.step_boundary import Finished
    from pharoah.torch_names import what_is_lost

    program = prepare()
    code = ExecutedCode() if os.environ.get(RECORD_CODE) else None

    def side_effect(what: str) -> None:
        hint = f"; this machine does not allow isolation: {sandbox.refused}" if sandbox.refused else ""
        report.reason(f"side effect before the first step: {what}{hint}")

    def step_seen(found: DryRun, final: bool) -> None:
        fingerprint = replace(found.fingerprint, code=code.digests() if code else {})
        result = with_next_stage(found)._replace(
            fingerprint=fingerprint,
            assumptions=(*found.assumptions, *values.assumed, *what_is_lost(), *filter(None, (doubts(),))),
            processes=int(os.environ.get(PROCESSES, "1")),
        )
        # A shell may run one program that evaluates a model, and then the one that trains it.
        is_last = final and not (fingerprint.serves and InsideShell.from_environment())
        report.write(ReportKind.FINAL if is_last else ReportKind.PROVISIONAL, result.to_json())

    values = Explorer(report.reason, report.branch, deadline)
    report.decisions = values.decisions
    if names := os.environ.get(EXTENSIONS):
        substitute(names.split(","))
        values.assumed += [f"{name} cannot be imported: substitutes compute its functions" for name in names.split(",")]
    try:
        with fake_step(step_seen, values):
            install_audit_hook(side_effect, isolated=sandbox.is_isolated, folder=os.environ.get(SCRATCH_FOLDER, ""))
            if mail := os.environ.get(MAIL):
                open_mail(mail)
            if change := os.environ.get(MITIGATION):
                apply_mitigation(Mitigation.from_json(change))
            if code:
                code.start()
            program()
        if not InsideShell.from_environment():  # another program of the shell may step
            report.reason(ENDED)
    except (Finished, DataDependentBranch):
        pass  # reported when it happened
    except SystemExit as exit_:
        if exit_.code or not InsideShell.from_environment():  # programs that prepare something end so as well
            report.reason(f"the script exited with {exit_.code} before an optimizer stepped")
    except ImportError as error:
        if name := missing_extension(error):
            report.write(ReportKind.MISSING, name)
        raise
    if InsideShell.from_environment():
        with suppress(OSError, ValueError):
            sys.stdout.flush()  # the shell may read what the program prints


def prepare_child(program: Program) -> Callable[[], Callable[[], object]]:
    """What `run` needs to run the first rank of a job. A launcher's arguments are parsed later, as that takes torch."""
    if not program.launcher:
        _number(program)
        script = _script(program.arguments)
        return lambda: script

    def parse() -> Callable[[], object]:
        direct = launchers()[program.launcher].first_process(program)
        _number(direct)
        return _script(direct.arguments)

    return parse


def _number(program: Program) -> None:
    """Set what the launcher of a program would set. A program without ranks leaves what the one before it has set: a
    launcher may start it by a shell script."""
    os.environ.update(program.rank_environment())
    if program.is_distributed:
        os.environ[PROCESSES] = str(program.processes or 1)


def _script(arguments: Sequence[str]) -> Callable[[], object]:
    import runpy

    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        sys.path.insert(0, str(Path.cwd()))
        return lambda: runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    sys.argv = list(arguments)
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    return lambda: runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    """Never returns."""
    results, program, seconds, sandbox = sys.argv[1:]  # a script gets arguments of its own
    what, walls = Program.from_json(program), Sandbox.from_json(sandbox)
    if what.launcher and launchers()[what.launcher].starts_commands:
        if what.nodes or what.processes:  # the program that the shell starts is a rank then, unless it starts ranks
            _number(what)
        run_shell(int(results), what, float(seconds), walls)
    run(int(results), prepare_child(what), float(seconds), walls)


if __name__ == "__main__":
    main()
