"""The one way to write a file, whoever else may write into its folder.

`write_atomically` and `AtomicFile` are for files that a program names itself, in a folder of its own. `write_output`
and `open_output` are for a file that a person has named. `create_exclusively` is for one that must not exist yet,
`open_append` for a file that grows, and `open_lock` for one that is only locked. Symbolic links of other users are
never followed (docs/adr/0065). All of them raise OSError, whose text says what to do.

Imported by the training process, so it needs the standard library only.
"""

from pharoah_system.files._atomic import AtomicFile, write_atomically
from pharoah_system.files._in_place import create_exclusively, open_append, open_lock
from pharoah_system.files._outputs import make_output_folder, open_output, write_output

__all__ = [
    "AtomicFile",
    "create_exclusively",
    "make_output_folder",
    "open_append",
    "open_lock",
    "open_output",
    "write_atomically",
    "write_output",
]
