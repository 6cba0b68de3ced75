"""`make sbom`: what is installed, as a bill of materials in CycloneDX 1.6 (JSON), from the distributions' own metadata.

The same installation gives the same bytes, so two bills can be compared.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from supply_chain.licences import licence_of
from supply_chain.lock import BUILD, CPU_TORCH, CUDA, DEV, hashes

OURS = "pharoah"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Stands for the time of the bill: the same installation must give the same bytes."""
RUN_EXTRAS = frozenset({"provider", "agent", "sodium", "draw", "torch"})
"""Extras of Pharoah that somebody runs; the others are for development."""


def main() -> int:
    """Write the bill. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(bill(distributions()))
    print(f"wrote {out}")
    return 0


def bill(installed: Iterable[Distribution]) -> str:
    """The bill of materials of some distributions, Pharoah among them, as JSON."""
    found = {_name(one.metadata["Name"]): one for one in installed}
    scopes, locked = _scopes(found), hashes(BUILD, DEV, CUDA, CPU_TORCH)
    components = {name: _component(name, one, scopes[name], locked) for name, one in sorted(found.items())}
    main = components.pop(OURS)
    serial = uuid.uuid5(uuid.NAMESPACE_URL, " ".join(sorted(str(one.purl) for one in components.values())))
    document = Bom(
        components=components.values(),
        serial_number=serial,
        metadata=BomMetaData(component=main, timestamp=EPOCH),
    )
    for name, component in {OURS: main, **components}.items():
        needed = sorted(_needs(found[name], found.keys()))
        document.register_dependency(component, [components[other] for other in needed if other in components])
    return make_outputter(document, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=1)


def _component(
    name: str, distribution: Distribution, scope: ComponentScope, locked: Mapping[str, set[str]]
) -> Component:
    """The hashes are those of all files that the lock accepts: which of them was installed is not recorded by pip."""
    version = distribution.version
    return Component(
        name=name,
        version=version,
        type=ComponentType.APPLICATION if name == OURS else ComponentType.LIBRARY,
        bom_ref=f"{name}=={version}",
        purl=PackageURL("pypi", name=name, version=version),
        scope=scope,
        licenses=[LicenseExpression(licence_of(distribution))],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=one) for one in sorted(locked.get(name, ()))],
    )


def _scopes(found: Mapping[str, Distribution]) -> dict[str, ComponentScope]:
    """What everybody needs who installs Pharoah, what one of its extras needs, and what is for development alone."""
    required, run = _closure(found, frozenset()), _closure(found, RUN_EXTRAS)
    return {
        name: ComponentScope.REQUIRED
        if name in required
        else ComponentScope.OPTIONAL
        if name in run
        else ComponentScope.EXCLUDED
        for name in found
    }


def _closure(found: Mapping[str, Distribution], extras: frozenset[str]) -> set[str]:
    reached, ahead = {OURS}, deque([(OURS, extras)])
    while ahead:
        name, asked = ahead.popleft()
        for other in _needs(found[name], found.keys(), asked) - reached:
            reached.add(other)
            ahead.append((other, frozenset()))
    return reached


def _needs(distribution: Distribution, found: Iterable[str], extras: Iterable[str] = ()) -> set[str]:
    """Installed distributions that this one requires here."""
    return {name for name in _find_required(distribution, ["", *extras]) if name in set(found)}


def _find_required(distribution: Distribution, extras: Iterable[str]) -> Iterator[str]:
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield _name(requirement.name)


def _name(written: str) -> str:
    """A name in the form in which names are compared (PEP 503)."""
    return str(canonicalize_name(written))


if __name__ == "__main__":
    sys.exit(main())
