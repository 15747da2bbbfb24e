-- The write lock at once: a transaction that has read first could not write any more once somebody else wrote.
begin immediate
