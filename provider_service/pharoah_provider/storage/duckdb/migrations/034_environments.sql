-- Why a work was dropped, such as an environment that its node could not build.
ALTER TABLE campaign_works ADD COLUMN reason VARCHAR DEFAULT '';
