-- Facts and contexts are two things (ADR 36): evidence keeps the facts of its node, and a release assigns the context.
-- `context_id` of nodes and cells is the name of the set of all facts. Evidence from before has no facts.
ALTER TABLE cells ADD COLUMN facts VARCHAR[];
ALTER TABLE outcome_reports ADD COLUMN facts VARCHAR[];
-- The rule of contexts under which a campaign was planned, as JSON; its blocks keep the contexts of then.
ALTER TABLE campaigns ADD COLUMN context_rule VARCHAR DEFAULT '{"ignored": []}';
