"""The dry run: one training step of a script on fake tensors, in a child process that cannot change the machine.

    command line --> parent.dry_run --> child.run: sandbox, fake tensors, the script --> DryRun

`parent` is the parent's side and `child` the child's. Only the child imports torch.
"""

from pharoah.dryrun.parent import dry_run as dry_run
from pharoah.dryrun.parent import dry_run_step as dry_run_step
from pharoah.dryrun.result import DryRun as DryRun
