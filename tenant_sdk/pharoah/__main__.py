from pharoah.cli import entry

entry()
