-- Why a work was dropped, such as an environment that its node could not build.
ALTER TABLE campaign_works ADD COLUMN reason VARCHAR DEFAULT '';
-- Whether one environment is enough of those in which a workload executes the same code.
ALTER TABLE campaigns ADD COLUMN skip_same_code BOOLEAN DEFAULT false;
