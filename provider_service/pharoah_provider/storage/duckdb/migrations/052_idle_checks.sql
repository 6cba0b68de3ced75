-- Checks of idle nodes that nobody suspects (ADR 51).
CREATE TABLE idle_checks (
    node TEXT, benchmark TEXT, result TEXT, propensity DOUBLE, checked_at DOUBLE, slowdown_ratio DOUBLE, reason TEXT
);
