"""Functions that read what callers send, in reading processes alone (`pharoah_serving.reading_processes`).

Each takes and returns bytes. No other module of the services may call what decodes, checks or names a text of a caller
(`tests/architecture/test_reading.py`). What is added here is imported when its first message comes.
"""

from __future__ import annotations

READERS = {
    "cell": "pharoah_provider.services.readers.cells:read_cell",
    "long_answer": "pharoah_provider.services.readers.cells:read_long_answer",
    "fingerprint": "pharoah_provider.services.readers.files:read_fingerprint",
    "campaign": "pharoah_provider.services.readers.files:check_campaign",
    "profile": "pharoah_provider.services.readers.files:read_profile",
    "portable_table": "pharoah_provider.services.readers.tables:count_rows",
}
"""Name to `module:function`."""
TABLE = __name__
"""This module, as a reading process is given it."""
