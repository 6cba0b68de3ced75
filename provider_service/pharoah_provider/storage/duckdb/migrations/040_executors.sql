-- Who runs a campaign and for how long, what came of each work, and the suspects that campaigns confirm.
ALTER TABLE campaigns ADD COLUMN executor VARCHAR DEFAULT '{}';
ALTER TABLE campaigns ADD COLUMN budget_seconds DOUBLE DEFAULT 0;
ALTER TABLE campaign_works ADD COLUMN suspect VARCHAR DEFAULT '';
ALTER TABLE campaign_works ADD COLUMN outcome VARCHAR DEFAULT '';
ALTER TABLE campaign_works ADD COLUMN began_at DOUBLE;

CREATE TABLE campaign_suspects (
    campaign_id VARCHAR NOT NULL,
    suspect_id VARCHAR NOT NULL,
    node VARCHAR NOT NULL,
    title VARCHAR NOT NULL,
    suspected VARCHAR NOT NULL,
    control VARCHAR NOT NULL,
    decision VARCHAR NOT NULL,
    pairs INTEGER NOT NULL,
    against INTEGER NOT NULL,
    for_it INTEGER NOT NULL,
    e_value DOUBLE NOT NULL
);
