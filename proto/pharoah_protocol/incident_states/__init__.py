"""The states of an incident of a node: one file each, or an entry point of the group `pharoah.incident_states`.

`docs/provider/monitoring.md` draws the transitions between our own states; a state of another distribution has a
`Rule` that leads into it.
"""

from pharoah_protocol.incident_states._state import (
    GROUP,
    INCIDENT_STATES,
    IncidentFacts,
    IncidentState,
    Rule,
)
from pharoah_protocol.incident_states.cleared import CLEARED
from pharoah_protocol.incident_states.confirmed import CONFIRMED
from pharoah_protocol.incident_states.dismissed import DISMISSED
from pharoah_protocol.incident_states.quiet import QUIET
from pharoah_protocol.incident_states.suspected import SUSPECTED

__all__ = [
    "CLEARED",
    "CONFIRMED",
    "DISMISSED",
    "GROUP",
    "INCIDENT_STATES",
    "QUIET",
    "SUSPECTED",
    "IncidentFacts",
    "IncidentState",
    "Rule",
]
