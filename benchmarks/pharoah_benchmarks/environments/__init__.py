"""Environments: the software that a cell runs in, as data. Without torch: providers read plans.

An environment is a list of packages at exact versions, and the Python that they are for. Its text names it wherever it
goes: `tokenizers==0.19.1 transformers==4.40.2`, or `python==3.12 numpy==2.4.6`. So two environments that are equal have
equal texts, and an agent needs nothing but the text to build one.
"""

from pharoah_benchmarks.environments._environment import Environment, EnvironmentTextError
from pharoah_benchmarks.environments.answer import BuildError
from pharoah_benchmarks.environments.files import (
    EnvironmentFileError,
    EnvironmentGroup,
    environment_files,
    read_environments,
)
from pharoah_benchmarks.environments.named import NamedEnvironments
from pharoah_benchmarks.environments.store import EnvironmentStore

__all__ = [
    "BuildError",
    "Environment",
    "EnvironmentFileError",
    "EnvironmentGroup",
    "EnvironmentStore",
    "EnvironmentTextError",
    "NamedEnvironments",
    "environment_files",
    "read_environments",
]
