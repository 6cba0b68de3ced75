"""Whether a script says in its source that it trains.

A script that evaluates a model before it makes an optimizer looks like one that serves, until it trains. Names in its
own source are a hint which of the two it is: the dry run of a script without them need not wait for its end.
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

_WORDS = frozenset({"backward", "fit", "optim", "train", "training_step"})
"""Names of what trains: gradients, optimizers, and the trainers of transformers and Lightning."""


def script_may_train() -> bool:
    """Whether the source of the running script names what trains; true where there is no source."""
    return _may_train(getattr(sys.modules["__main__"], "__file__", None) or "")


@cache
def _may_train(file: str) -> bool:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return True
    return any(_names_training(node) for node in ast.walk(tree))


def _names_training(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name) | ast.alias(name=name) | ast.ImportFrom(module=str(name)):
            return not _WORDS.isdisjoint(name.split("."))
    return False
