-- The write lock at once: a transaction that has read first could not write any more once another one wrote.
begin immediate
