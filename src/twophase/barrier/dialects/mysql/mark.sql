-- Lives exactly as long as the transaction does, so its release at the end proves that there was only one.
savepoint twophase_barrier
