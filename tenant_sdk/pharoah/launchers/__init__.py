"""The launchers of this package, one per module. To add one, add a module with one `Launcher`."""

from __future__ import annotations

from pharoah.launchers._launcher import GROUP, Launcher, Parsed, launch_of, launchers, parse_valued_options, split
from pharoah.launchers._options import skips_site
from pharoah.launchers._program import Launch, Program, RankVariables

__all__ = [
    "GROUP",
    "Launch",
    "Launcher",
    "Parsed",
    "Program",
    "RankVariables",
    "launch_of",
    "launchers",
    "parse_valued_options",
    "skips_site",
    "split",
]
