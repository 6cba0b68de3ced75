-- A run is found by its number alone, without reading all runs of a year.
CREATE INDEX runs_by_number ON runs (run_id);
