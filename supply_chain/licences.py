"""The licences of all installed distributions: each must be one that this project may be used and shipped with.

A licence is an SPDX expression. Newer distributions state one (PEP 639); what older ones state is translated here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions

from license_expression import AND, OR, LicenseSymbol, get_spdx_licensing

ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CNRI-Python",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    # Holds for changed files of the distribution itself, which nobody here changes.
    "MPL-2.0",
    "PSF-2.0",
    "Zlib",
}
"""SPDX identifiers of permissive licences. A copyleft licence such as the GPL is none of them."""
STATED = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "bsd": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd license": "BSD-3-Clause",
    "isc license": "ISC",
    "isc license (iscl)": "ISC",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "psfl": "PSF-2.0",
    "python software foundation license": "PSF-2.0",
}
"""What older metadata states, in lower case, to its SPDX identifier."""
CLASSIFIER = re.compile(r"License :: (?:OSI Approved :: )?(.+)")
VENDORED_BY_TORCH = re.compile(r"nvidia-(?!ml-py)|cuda-")
"""Libraries of NVIDIA, under its own licence. They come with torch for CUDA, which is the user's own: nothing of
Pharoah needs them, and the lock keeps them apart (`requirements/cuda.txt`)."""
_SPDX = get_spdx_licensing()


class LicenceError(ValueError):
    """A distribution without a licence that can be read, or with one that is not allowed."""


def main() -> int:
    """Print what is not allowed. Returns the exit code."""
    checked = list(distributions())
    faults = list(faults_of(checked))
    print("\n".join(faults) or f"{len(checked)} distributions: all licences are allowed")
    return int(bool(faults))


def faults_of(checked: Iterable[Distribution]) -> Iterator[str]:
    """One sentence for each distribution that must not be installed."""
    for distribution in checked:
        name = distribution.metadata["Name"]
        try:
            expression = licence_of(distribution)
        except LicenceError as error:
            yield str(error)
            continue
        if not VENDORED_BY_TORCH.match(name) and not is_allowed(expression):
            yield f"{name}: {expression} is not an allowed licence"


def licence_of(distribution: Distribution) -> str:
    """The SPDX expression of a distribution. Raises LicenceError."""
    metadata = distribution.metadata
    if stated := metadata["License-Expression"]:
        return str(stated)
    classifiers = (CLASSIFIER.fullmatch(text) for text in metadata.get_all("Classifier", []))
    candidates = [(metadata["License"] or "").strip(), *(match[1] for match in classifiers if match)]
    for candidate in candidates:
        if found := STATED.get(candidate.lower()) or (candidate if _is_expression(candidate) else ""):
            return found
    if VENDORED_BY_TORCH.match(metadata["Name"]):
        return "LicenseRef-NVIDIA-Proprietary"
    raise LicenceError(f"{metadata['Name']}: no licence that can be read; look at it, and add what it states to STATED")


def is_allowed(expression: str) -> bool:
    """Whether an SPDX expression leaves a choice of allowed licences."""
    return _is_allowed(_SPDX.parse(expression))


def _is_allowed(parsed: object) -> bool:
    if isinstance(parsed, OR):
        return any(map(_is_allowed, parsed.args))
    if isinstance(parsed, AND):
        return all(map(_is_allowed, parsed.args))
    return str(parsed) in ALLOWED


def _is_expression(text: str) -> bool:
    """Whether a text is an expression of known identifiers and not prose."""
    if not text or len(text) > 100:
        return False
    try:
        parsed = _SPDX.parse(text, validate=True)
    except Exception:  # noqa: BLE001 - the library raises errors of several kinds for prose
        return False
    return all(isinstance(symbol, LicenseSymbol) for symbol in parsed.symbols)


if __name__ == "__main__":
    sys.exit(main())
