"""The command `learn`: make the next release from all stored evidence."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_learning.baselines import learn_baselines
from pharoah_learning.context_evidence import outcomes_in_contexts
from pharoah_learning.context_rule import ContextRule
from pharoah_learning.degradation import fit_degradation
from pharoah_learning.evidence import BenchmarkResult, LeftOut, OutcomeReport
from pharoah_learning.incompatible_pairs import Call, PairFinding
from pharoah_learning.portable_table import import_rows
from pharoah_learning.production import learn_production
from pharoah_learning.recipe import learn_recipe
from pharoah_learning.release import BenchmarkBaseline, LearnedRow, NodeKind, Release, SealInputs, Suspect
from pharoah_learning.sealing import groups_of, seal
from pharoah_learning.shared_outcomes import learn_shared_outcomes
from pharoah_learning.table import learn_table
from pharoah_learning.usable_evidence import usable_degraded_runs, usable_outcome_reports, usable_results
from pharoah_protocol.pseudonyms import period_at
from pharoah_protocol.vocabulary import Rung, Scope, Severity
from pharoah_provider.portable_tables import tables_of
from pharoah_provider.storage.base import Storage
from pharoah_provider.storage.records import ImportedTable
from pharoah_serving.errors import NotReady, ProviderError


async def learn(store: Storage) -> AsyncIterator[str | Release]:
    """Learn a release and store it; yields a line of text for each step, and the release at the end.

    Evidence that cannot be used is skipped and named. Raises NotReady where there is neither a trial that can be used
    nor an imported table, and ProviderError for a release that cannot be sealed; it is not stored.
    """
    read_at, left_out = time.time(), LeftOut()
    trials = await store.evidence.trials(before=read_at, left_out=left_out)
    returned = await store.node_actions.list_returned()
    fleet = tuple(sorted({NodeKind(node.device_id, tuple(node.server_facts)) for node in await store.nodes.nodes()}))
    table = await asyncio.to_thread(learn_table, trials, left_out, returned, fleet)
    periods = (period_at(read_at), period_at(read_at) - 1)
    shared = [await store.evidence.outcome_reports(period) for period in periods]
    rule = table.learned_contexts.rule
    names = await asyncio.to_thread(_learn_names, shared, rule, left_out)
    stored = await store.evidence.list_degraded_runs(left_out)
    degraded = await asyncio.to_thread(usable_degraded_runs, stored, left_out)
    pairs = await asyncio.to_thread(
        learn_production, await store.sharing.list_revealed_runs(read_at, left_out), left_out
    )
    degradation, note = await asyncio.to_thread(fit_degradation, degraded)
    recipe = await asyncio.to_thread(learn_recipe, degraded)
    baselines = await asyncio.to_thread(_learn_baselines, await store.evidence.baseline_probes(left_out), left_out)
    own = (*table.rows, *table.nodes, *table.expanded, *table.bands)
    imported = await asyncio.to_thread(_import, own, await store.imports.imports(before=read_at))
    for line in left_out.lines():
        yield line
    if not table.trials and not imported:
        raise NotReady("nothing to learn from: run a campaign first (pharoah-provider campaign run FILE)")
    found = sum(_is_exact_incompatibility(row) for row in table.rows)
    yield f"table: {len(table.rows)} rows from {len(table.trials)} trials; {found} exact incompatibilities"
    for line in table.learned_contexts.lines():
        yield line
    yield f"contexts: {len(table.contexts)} with trials whose facts are known"
    yield _about(table.suspects)
    yield f"sub-archetypes: {len(table.versions.sub_archetypes)}; {len(table.expanded)} rows for their other versions"
    limited = sum(row.limit is not None for row in table.rows)
    yield f"limits: {limited} rows about jobs that met a limit of nodes; they speak where it is at least as tight"
    yield f"near duplicates: {len(table.bands)} rows"
    yield f"gray nodes: {len(table.nodes)} rows"
    yield f"outcomes that tenants share: {len(names)} rows"
    yield _about_pairs(pairs)
    if imported:
        yield f"tables of other providers: {len(imported)} rows about what no own trial has shown"
    yield note
    worth = sum(item.collect for item in recipe)
    yield f"recipe: {worth} of {len(recipe)} features are worth collecting; see `pharoah-provider recipe`"
    yield f"baselines: {len(baselines)} (node x benchmark x load)"
    number = await store.published.last_release_number() + 1
    release = Release(
        release=number,
        rows=(*own, *names, *imported),
        degradation=degradation,
        baselines=tuple(baselines),
        notes=(note,),
        suspects=table.suspects,
        pairs=tuple(pairs),
        sub_archetypes=table.versions.sub_archetypes,
        version_changes=table.versions.changes,
        recipe=tuple(recipe),
        context_rule=rule,
        contexts=table.contexts,
        returned=returned,
        fleet=fleet,
    )
    await _check_sealing(release, int(read_at))
    await store.published.put_release(release, read_at)
    yield release


async def _check_sealing(release: Release, began: int) -> None:
    """Raises ProviderError: a release that cannot be sealed must be found before it is stored."""
    inputs = SealInputs(0, release, tuple(groups_of(release.rows)), began)
    try:
        await asyncio.to_thread(seal, inputs, bytes(32), Ed25519PrivateKey.generate())
    except ValueError as error:
        raise ProviderError(f"release {release.release} cannot be sealed and was not stored: {error}") from None


def _learn_names(shared: Sequence[Sequence[OutcomeReport]], rule: ContextRule, left_out: LeftOut) -> list[LearnedRow]:
    """Rows about the pseudonyms under which organisations report, from the reports of the periods in `shared`."""
    usable = [usable_outcome_reports(reports, left_out) for reports in shared]
    return learn_shared_outcomes(*(outcomes_in_contexts(votes, rule) for votes in usable))


def _learn_baselines(results: Sequence[BenchmarkResult], left_out: LeftOut) -> list[BenchmarkBaseline]:
    return learn_baselines(usable_results(results, left_out))


def _import(own: Sequence[LearnedRow], tables: Sequence[ImportedTable]) -> Sequence[LearnedRow]:
    return import_rows(own, tables_of(tables))


def _is_exact_incompatibility(row: LearnedRow) -> bool:
    return row.severity == Severity.BLOCK and row.rung == Rung.EXACT and row.scope == Scope.SERVER


def _about_pairs(pairs: list[PairFinding]) -> str:
    """One line about what revealed production runs show."""
    calls = Counter(pair.call for pair in pairs)
    found = ", ".join(f"{calls[call]} {call}" for call in Call if calls[call] and call is not Call.DECLINED)
    return f"pairs in production runs: {found or 'none'}" + ("; see `pharoah-provider pairs`" if found else "")


def _about(suspects: tuple[Suspect, ...]) -> str:
    """One line about failures that one node alone reports."""
    if not suspects:
        return "suspects: none"
    nodes = ", ".join(sorted({suspect.node for suspect in suspects}))
    return f"suspects: {len(suspects)} failures that one node alone reports ({nodes}); see `pharoah-provider suspects`"
