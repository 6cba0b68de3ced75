"""Builds one environment for an agent, in a process that ends with the agent.

    python -m pharoah_benchmarks.environments.builder TEXT [LOCKS]

Prints a `BuildAnswer`: the Python of the environment, or why it cannot be built.
"""

from __future__ import annotations

import sys

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_benchmarks.environments.answer import BuildAnswer, BuildError
from pharoah_benchmarks.environments.store import EnvironmentStore
from pharoah_system.parent_process import end_with_parent
from pharoah_system.standard_streams import show


def main() -> None:
    """Build the environment of the first argument with the locks of the second one, and print where its interpreter is,
    or why there is none."""
    end_with_parent()
    text, locks = [*sys.argv[1:], ""][:2]
    try:
        answer = BuildAnswer(python=str(EnvironmentStore().interpreter(Environment.read(text), locks)))
    except BuildError as error:
        answer = BuildAnswer(reason=str(error), may_be_tried_again=error.may_be_tried_again)
    except EnvironmentTextError as error:
        answer = BuildAnswer(reason=str(error))
    show(answer.to_json())


if __name__ == "__main__":
    main()
