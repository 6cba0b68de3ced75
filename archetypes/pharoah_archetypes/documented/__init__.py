"""What vendors document about which software goes with which other software and with which hardware.

    facts  {"torch": "2.6.0+cu124", "driver": "470.82.01"}  -->  documents().answers(facts)  -->  answers

`data` has one file for each relation between two facts; `relations` reads them, `knowledge` answers questions.
"""

from pharoah_archetypes.documented.gpus import capability_of
from pharoah_archetypes.documented.knowledge import Answer, Compatibility, Knowledge, documents
from pharoah_archetypes.documented.relations import Consequence, Inference, Relation, Statement

__all__ = [
    "Answer",
    "Compatibility",
    "Consequence",
    "Inference",
    "Knowledge",
    "Relation",
    "Statement",
    "capability_of",
    "documents",
]
