-- Fails when the transaction that set the mark has ended.
release savepoint twophase_barrier
