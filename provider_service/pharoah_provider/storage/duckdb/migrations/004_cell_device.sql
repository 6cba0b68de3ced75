-- What each cell ran on, and what the facts of its context name. Cells up to now all ran on the CPU.
ALTER TABLE cells ADD COLUMN device TEXT DEFAULT 'cpu';
ALTER TABLE cells ADD COLUMN context_device TEXT DEFAULT 'cpu';
-- A context has a GPU when a node of it lists one, or when a cell in it has seen one.
UPDATE cells SET context_device = 'cuda'
WHERE context_id IN (
        SELECT context_id FROM nodes
        WHERE chr(10) || array_to_string(server_facts, chr(10)) LIKE '%' || chr(10) || 'gpu=%')
   OR context_id IN (SELECT context_id FROM cells WHERE context LIKE '%"gpu": %');
