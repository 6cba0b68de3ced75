-- What a cell computed, and the seed of its weights and data: cells with one seed are compared.
ALTER TABLE cells ADD COLUMN losses DOUBLE[] DEFAULT [];
ALTER TABLE cells ADD COLUMN seed INTEGER DEFAULT 0;
