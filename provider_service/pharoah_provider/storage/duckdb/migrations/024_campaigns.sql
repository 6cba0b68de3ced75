-- Campaigns that last: the plan, what is done of it, and the block that each result belongs to.
CREATE TABLE campaigns (
    campaign_id VARCHAR PRIMARY KEY,
    name VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    state VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    created_at DOUBLE NOT NULL
);

CREATE TABLE campaign_works (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    context_id VARCHAR NOT NULL,
    block INTEGER NOT NULL,
    node VARCHAR NOT NULL,
    cell VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    ended_at DOUBLE
);

-- Empty for results from before blocks were recorded.
ALTER TABLE cells ADD COLUMN block VARCHAR DEFAULT '';
