"""The child's side of a dry run: `python -P -m pharoah.dryrun.child FD script.py args`.

Only what the fence needs is imported before the fence is up: a thread of a library would keep it from closing. What
the child has to say it says at once, one JSON line each: a script may swallow any exception.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pharoah.dryrun import RECORD_CODE, DryRun
from pharoah.dryrun.audit_hook import SideEffect, die_with_parent, fence, install_audit_hook
from pharoah.dryrun.mitigations import CHANGE, Mitigation, change_script


def run(results: int, program: Callable[[], object]) -> None:
    """Run under fake tensors until the step is over, and never return, whatever happens."""
    try:
        die_with_parent()
        _let_go_of_files(results)
        _step(program, lambda **message: _say(results, message), fence())
    except SideEffect:
        pass  # said when it was tried
    except BaseException as fault:  # noqa: BLE001 - the child's last line
        _say(results, {"reason": _reason(fault)})
    finally:
        os._exit(0)


def _let_go_of_files(results: int) -> None:
    """What a forked child inherits is the job's: its output, its logs, its connections."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in (results, nothing):
            try:
                os.dup2(nothing, int(name))
            except OSError:
                pass  # the descriptor that listed them


def _say(results: int, message: dict[str, str]) -> None:
    left = json.dumps(message).encode() + b"\n"
    try:
        while left:
            left = left[os.write(results, left) :]
    except OSError:
        pass  # nobody listens any more


def _step(program: Callable[[], object], say: Callable[..., None], no_fence: str) -> None:
    from pharoah.dryrun.executed_code import ExecutedCode
    from pharoah.dryrun.fake_tensors import fake_step
    from pharoah.dryrun.placeholder_values import DataDependentBranch
    from pharoah.dryrun.step_boundary import Finished

    code = ExecutedCode() if os.environ.get(RECORD_CODE) else None

    def side_effect(what: str) -> None:
        hint = f"; this machine allows no throw-away copy: {no_fence}" if no_fence else ""
        say(reason=f"side effect before the first step: {what}{hint}")

    def seen(found: DryRun, final: bool) -> None:
        fingerprint = replace(found.fingerprint, code=code.digests() if code else {})
        say(**{"final" if final else "provisional": found._replace(fingerprint=fingerprint).to_json()})

    try:
        with fake_step(seen, lambda reason: say(reason=reason)):
            install_audit_hook(side_effect, fenced=not no_fence)
            if change := os.environ.get(CHANGE):
                change_script(Mitigation.from_json(change))
            if code:
                code.start()
            program()
        say(reason="the script ended before an optimizer stepped")
    except (Finished, DataDependentBranch):
        pass  # said when it happened
    except SystemExit as exit_:
        say(reason=f"the script exited with {exit_.code} before an optimizer stepped")


def _reason(fault: BaseException) -> str:
    """One line: what was raised, and where in the user's own files."""
    from pharoah.dryrun.placeholder_values import place

    first_line = str(fault).strip().partition("\n")[0][:300]
    return f"{type(fault).__name__}: {first_line} ({place(fault.__traceback__)})"


def _script(program: Sequence[str]) -> Callable[[], object]:
    import runpy

    if program[0] == "-m":
        sys.argv = list(program[1:])
        sys.path.insert(0, str(Path.cwd()))
        return lambda: runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    sys.argv = list(program)
    sys.path.insert(0, str(Path(program[0]).resolve().parent))
    return lambda: runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    run(int(sys.argv[1]), _script(sys.argv[2:]))
