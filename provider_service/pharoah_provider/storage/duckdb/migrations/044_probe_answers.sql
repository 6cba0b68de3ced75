-- Whether the answer of a micro-benchmark was right, and a hash of the numbers that it computed.
ALTER TABLE probes ADD COLUMN correct BOOLEAN;
ALTER TABLE probes ADD COLUMN digest TEXT DEFAULT '';
