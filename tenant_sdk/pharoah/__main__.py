from pharoah.cli.main import entry

entry()
