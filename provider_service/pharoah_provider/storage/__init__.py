"""Everything the provider keeps. `base` lists what a storage must offer; `duckdb` is the storage of one machine."""
