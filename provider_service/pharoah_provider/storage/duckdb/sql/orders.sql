-- name: measured_orders
SELECT * FROM benchmark_orders WHERE ended_at >= ? ORDER BY ended_at
