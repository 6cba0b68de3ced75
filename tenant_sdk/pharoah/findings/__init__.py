"""The kinds of findings of this package, one per module. To add one, add a module with one `FindingKind`."""
