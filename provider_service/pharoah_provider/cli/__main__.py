from pharoah_provider.cli import entry

entry()
