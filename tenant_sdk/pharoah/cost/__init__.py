"""What a training step costs, and what that means on a machine: does it fit, how long does it take.

Standard library only: the dry run's child does the counting (`pharoah.dryrun.ledger`).
"""
