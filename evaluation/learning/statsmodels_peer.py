"""The tables and regressions of the learner as a user of pandas and statsmodels writes them.

`python statsmodels_peer.py FILE` reads the columns that `scale_worker` has written and prints JSON. It runs in an
environment of its own (`requirements/statsmodels.txt`), so it imports nothing of this repository.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm  # type: ignore[import-not-found]
from statsmodels.stats.contingency_tables import StratifiedTable  # type: ignore[import-not-found]

STRATA = ["generation", "scale", "age", "tenant"]


def main(file: Path) -> None:
    """Answer for the runs of one file."""
    frame, contexts = read(file)
    began = time.monotonic(), time.process_time()
    odds = stratified_tables(frame, contexts)
    tables_seconds = time.monotonic() - began[0]
    values, errors = regressions(frame, contexts)
    result = {
        "seconds": time.monotonic() - began[0],
        "cpu_seconds": time.process_time() - began[1],
        "tables_seconds": tables_seconds,
        "peak_bytes": peak_bytes(),
        "odds": odds,
        "adjusted": values,
        "standard_errors": errors,
    }
    print(json.dumps(result))


def read(file: Path) -> tuple[pd.DataFrame, list[str]]:
    """The runs as a frame of small integers, and the names of their contexts. This is not timed."""
    with np.load(file) as columns:
        in_context = columns["in_context"]
        contexts = [f"c{number}" for number in range(in_context.shape[1])]
        data = {"archetype": columns["archetype"], **{name: columns[name] for name in STRATA}}
        data |= {name: in_context[:, number] for number, name in enumerate(contexts)}
        return pd.DataFrame({**data, "failed": columns["failed"]}), contexts


def stratified_tables(frame: pd.DataFrame, contexts: list[str]) -> list[list[float]]:
    """The odds ratio of Mantel and Haenszel for each archetype and context, with its test.

    The strata are numbered once, and all pairs of one context are counted by one `groupby`.
    """
    frame = frame.assign(stratum=frame.groupby(STRATA).ngroup())
    found: list[list[float]] = [[] for _ in range(int(frame["archetype"].max()) + 1)]
    for context in contexts:
        counted = frame.groupby(["archetype", "stratum", context])["failed"].agg(["size", "sum"])
        runs = counted["size"].unstack(context, fill_value=0)
        failures = counted["sum"].unstack(context, fill_value=0)
        for archetype, own in runs.groupby(level="archetype"):
            failed = failures.loc[archetype]
            total = own.droplevel("archetype")
            tables = np.array(
                [[failed[exposed], total[exposed] - failed[exposed]] for exposed in (True, False)], dtype=float
            )
            # A stratum of one run says nothing, and its variance cannot be computed.
            table = StratifiedTable(tables[:, :, tables.sum(axis=(0, 1)) > 1])
            table.test_null_odds(correction=True)
            found[int(archetype)].append(float(table.oddsratio_pooled))
    return found


def regressions(frame: pd.DataFrame, contexts: list[str]) -> tuple[list[list[float]], list[list[float]]]:
    """One logistic regression for each archetype: the coefficients of its contexts, and their standard errors."""
    values, errors = [], []
    for _, own in frame.groupby("archetype"):
        confounders = pd.get_dummies(own[STRATA].astype("category"), drop_first=True)
        columns: Any = sm.add_constant(pd.concat([own[contexts], confounders], axis=1).astype(float))
        fitted = sm.Logit(own["failed"].astype(float), columns).fit(disp=0)
        values.append(fitted.params[contexts].tolist())
        errors.append(fitted.bse[contexts].tolist())
    return values, errors


def peak_bytes() -> int:
    """The most memory that this process has had, as the kernel counts it."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
