-- name: open_spans
SELECT node, metric, device, span.value, span.first_at, span.last_at, span.readings
FROM open_telemetry_spans AS span SEMI JOIN batch USING (node, metric, device)

-- name: extend
UPDATE open_telemetry_spans AS span SET last_at = batch.last_at, readings = batch.readings
FROM batch WHERE span.node = batch.node AND span.metric = batch.metric AND span.device = batch.device

-- name: remove_open
DELETE FROM open_telemetry_spans AS span USING batch
WHERE span.node = batch.node AND span.metric = batch.metric AND span.device = batch.device
