"""Answers from documented relations: compatible, incompatible or unknown, with the statement that says so.

A statement about the very release counts first, the more precise one before the less precise one. Two documents that
contradict each other make the answer unknown. A release without a statement may be inferred from the releases on both
of its sides (`relations.Inference`). Everything else is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from itertools import groupby

from pharoah_archetypes.documented.device_code import read_device_code
from pharoah_archetypes.documented.relations import Inference, Relation, Statement, read_relation
from pharoah_archetypes.documented.releases import Release, read_release

_MAX_NUMBER = 10**9
"""Above every number of a release (`releases.read_release`)."""


class Compatibility(StrEnum):
    """What documents say about two facts."""

    COMPATIBLE = "compatible"
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown"
    """No document says it, documents contradict each other, or the facts are not precise enough."""


@dataclass(frozen=True)
class Answer:
    """One answered question."""

    relation: Relation
    release: str
    value: str
    compatibility: Compatibility
    statement: Statement | None = None
    """What says so. Of an inferred answer, that about the earlier neighbour; None where nothing is known."""
    why: str = ""
    """Why it is unknown, how it was inferred, or what the document adds; may be empty."""
    instead: Statement | None = None
    """What is stated about another build, with which the value works; of facts that are incompatible only."""

    @property
    def question(self) -> str:
        return self.relation.question.format(release=self.release, value=self.value)

    @property
    def remedy(self) -> str:
        """What to do; empty unless the facts are incompatible."""
        if self.compatibility is not Compatibility.INCOMPATIBLE or self.statement is None:
            return ""
        remedy = self.relation.remedy.format(release=self.release, value=self.value, allows=self.statement.allows)
        if self.instead is None:
            return remedy
        build = ", ".join(f"{name} {value}" for name, value in self.instead.given.items())
        return f"{remedy}; documented to work: {self.relation.subject} {self.instead.release} ({build})"

    @property
    def source(self) -> str:
        """The document, with the day on which it was read; empty where there is none."""
        return f"{self.statement.source}, read {self.statement.as_of}" if self.statement else ""


@dataclass(frozen=True)
class _Found:
    """What some statements say together."""

    says: bool | None
    statement: Statement | None = None
    why: str = ""


class Knowledge:
    """All relations, by name."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        """Raises ValueError when two relations have one name."""
        self.relations: dict[str, Relation] = {}
        for relation in relations:
            if relation.name in self.relations:
                raise ValueError(f"{relation.name}: there are two relations with this name")
            self.relations[relation.name] = relation

    @property
    def names(self) -> frozenset[str]:
        """Names of all facts that a relation is about."""
        return frozenset(name for one in self.relations.values() for name in (one.subject, one.about))

    def answers(self, facts: Mapping[str, str]) -> Iterator[Answer]:
        """The answer of each relation of which both facts are there."""
        for relation in self.relations.values():
            if facts.get(relation.subject) and facts.get(relation.about):
                yield answer(relation, facts)


def answer(relation: Relation, facts: Mapping[str, str]) -> Answer:
    """What the documents say about the two facts of a relation. Facts that are not versions make it unknown."""
    release, value = facts[relation.subject], facts[relation.about]
    try:
        found = _ask(relation, read_release(release), value, facts)
    except ValueError as error:
        found = _Found(None, why=str(error))
    compatibility = {
        True: Compatibility.COMPATIBLE,
        False: Compatibility.INCOMPATIBLE,
        None: Compatibility.UNKNOWN,
    }[found.says]
    instead = _another_build(relation, read_release(release), value, facts) if found.says is False else None
    return Answer(relation, release, value, compatibility, found.statement, found.why, instead)


def _ask(relation: Relation, release: Release, value: str, facts: Mapping[str, str]) -> _Found:
    if listed := facts.get(relation.listed, ""):
        own = Statement(release, read_device_code(listed), source=relation.listed_source, as_of=relation.as_of)
        return _together([own], value)
    if not relation.is_about(release):
        return _Found(None, why=f"no document is about the build {facts[relation.subject]}")
    statements = [statement for statement in relation.statements if statement.holds_for(facts)]
    if not statements:
        return _Found(None, why=f"documents are about {_builds(relation)}")
    rule = relation.inference
    found = (
        _name(statements, release, value)
        or _find_by_parts(rule, statements, release, value)
        or (_pair(statements, release, value) if relation.pairs and relation.pairs.allows(value) else None)
        or _infer(rule, statements, release, value)
    )
    if found.says is False and facts.get(relation.unless):
        return _Found(None, found.statement, relation.unless_note)
    return found


def _builds(relation: Relation) -> str:
    """The further facts for which documents say something, such as `cuda 12.6, 12.8 and machine x86_64`."""
    given: dict[str, set[str]] = {}
    for statement in relation.statements:
        for name, value in statement.given.items():
            given.setdefault(name, set()).add(value)
    return " and ".join(f"{name} {', '.join(sorted(values))}" for name, values in given.items())


def _another_build(relation: Relation, release: Release, value: str, facts: Mapping[str, str]) -> Statement | None:
    """A statement about another build, for the same machine, that a value works with.

    One about the same release comes first, then the next later one, then the latest earlier one.
    """
    works = [
        statement
        for statement in relation.statements
        if statement.given
        and statement.given.get("machine") == facts.get("machine")
        and statement.says(value)
        and not (statement.release.covers(release) and statement.holds_for(facts))
    ]
    same = [one for one in works if one.release.covers(release)]
    later = [one for one in works if one.release.numbers > release.numbers]
    return next(
        (
            chosen(found, key=lambda one: one.release.numbers)
            for chosen, found in ((min, same), (min, later), (max, works))
            if found
        ),
        None,
    )


def _name(statements: Sequence[Statement], release: Release, value: str) -> _Found | None:
    """What the statements about the release say, the most precise ones first; None where there are none."""
    about = sorted((s for s in statements if s.release.covers(release)), key=lambda s: -len(s.release.numbers))
    first: _Found | None = None
    for _, equally_precise in groupby(about, key=lambda s: len(s.release.numbers)):
        found = _together(list(equally_precise), value)
        first = first or found
        if found.says is not None:
            return found
    return first


def _find_by_parts(rule: Inference, statements: Sequence[Statement], release: Release, value: str) -> _Found | None:
    """What statements about parts of the release say, such as 2.1.0 and 2.1.1 for 2.1; None where there are none.

    There may be other parts before, between and after them, so what is inferred for those has to be the same.
    """
    parts = {statement.release for statement in statements if release.covers(statement.release)}
    if not parts:
        return None
    found = [_name(statements, part, value) or _Found(None) for part in sorted(parts, key=lambda one: one.numbers)]
    ends = [Release((*release.numbers, number)) for number in (-1, _MAX_NUMBER)]
    found += [_infer(rule, statements, end, value) for end in ends]
    if len({one.says for one in found}) == 1:
        return found[0]
    return _Found(None, found[0].statement, f"it depends on which release of {release} it is")


def _together(statements: Sequence[Statement], value: str) -> _Found:
    """What equally precise statements say."""
    said = [(statement.says(value), statement) for statement in statements]
    certain = [(says, statement) for says, statement in said if says is not None]
    if len({says for says, _ in certain}) > 1:
        return _Found(None, certain[0][1], "documents contradict each other")
    says, statement = (certain or said)[0]
    undecided = statement.unclear_note or f"the document does not decide it for {value}"
    return _Found(says, statement, {True: statement.note, False: "", None: undecided}[says])


def _pair(statements: Sequence[Statement], release: Release, value: str) -> _Found | None:
    """What follows from a value that is made for one minor release; None where it may be made for the asked one."""
    minor = release.numbers[:2]
    made_for = [statement for statement in statements if statement.says(value)]
    same = [s for s in statements if s.release.numbers[:2] == minor and s.says(value) is not False]
    if not made_for or same or len(minor) < 2:
        return None
    return _Found(False, made_for[0], f"it is made for release {made_for[0].release}")


def _infer(rule: Inference, statements: Sequence[Statement], release: Release, value: str) -> _Found:
    """What follows for a release that no statement names."""
    earlier = sorted({s.release for s in statements if s.release.numbers < release.numbers}, reverse=True)
    later = sorted({s.release for s in statements if s.release.numbers > release.numbers})
    if not earlier or not later:
        return _Found(None, why=f"no document names release {release}")
    before, after = (_Side.nearest(statements, side, value) for side in (earlier, later))
    says = _between(rule, before, after, value)
    if says is None:
        return _Found(None, why=f"no document names release {release}, and its neighbours do not decide it")
    return _Found(says, before.statements[0], f"inferred from releases {before.release} and {after.release}")


@dataclass(frozen=True)
class _Side:
    """The nearest release on one side of the asked one for which the documents decide the question."""

    release: Release
    statements: Sequence[Statement]
    says: bool | None

    @classmethod
    def nearest(cls, statements: Sequence[Statement], releases: Sequence[Release], value: str) -> _Side:
        """`releases` are sorted, the nearest first. Where none decides the question it is the nearest one."""
        for release in releases:
            found = _name(statements, release, value) or _Found(None)
            if found.says is not None:
                break
        else:
            release, found = releases[0], _Found(None)
        return cls(release, [s for s in statements if s.release.covers(release)], found.says)


def _between(rule: Inference, before: _Side, after: _Side, value: str) -> bool | None:
    """What a rule concludes from the two sides of a release; None where it concludes nothing."""
    both = before.says if before.says is after.says else None
    above = before.says is not True and after.says is False and all(s.above(value) for s in after.statements)
    below = after.says is not True and before.says is False and all(s.below(value) for s in before.statements)
    sides = [*before.statements, *after.statements]
    match rule:
        case Inference.THRESHOLD:
            return both
        case Inference.WINDOW:
            return True if both else False if above or below else None
        case Inference.LIST:
            return False if above or below else None
        case Inference.CODE:
            if both:
                return all(s.has_code_before(value) for s in sides) or None
            older = both is False and all(s.has_no_code_before(value) for s in sides)
            return False if above or older else None


@cache
def documents() -> Knowledge:
    """The relations that come with this package. Raises ValueError that names the file and the key."""
    folder = resources.files(__package__).joinpath("data")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return Knowledge(read_relation(file.name.removesuffix(".toml"), file.read_text()) for file in files)
