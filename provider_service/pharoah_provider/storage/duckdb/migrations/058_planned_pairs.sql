-- How many pairs of cells a suspect gets at most, on which nodes alone it fails, and what a decision lacks (ADR 72).
ALTER TABLE campaign_suspects ADD COLUMN most_pairs INTEGER DEFAULT 60;
ALTER TABLE campaign_suspects ADD COLUMN nodes VARCHAR[] DEFAULT [];
ALTER TABLE campaign_suspects ADD COLUMN missing VARCHAR DEFAULT '';
