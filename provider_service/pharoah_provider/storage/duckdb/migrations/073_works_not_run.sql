-- Why a work was not run, as a member of NotRun (ADR 73). None is dropped: `campaign resume` brings each back.
ALTER TABLE campaign_works ADD COLUMN cause VARCHAR DEFAULT '';
UPDATE campaign_works SET cause = CASE
    WHEN state = 'same code' THEN 'same code'
    WHEN suspect <> '' AND reason = '' THEN 'suspect decided'
    WHEN reason = 'all nodes that could do it have left the campaign' THEN 'nodes left'
    WHEN contains(reason, 'attempts have failed') THEN 'attempts failed'
    ELSE 'environment not built' END
WHERE state IN ('same code', 'dropped');
UPDATE campaign_works SET state = 'not run' WHERE state IN ('same code', 'dropped');
