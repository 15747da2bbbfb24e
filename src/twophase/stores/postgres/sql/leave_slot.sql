-- A process that stops gives its slot back: the next start takes it at once, with the rows. So does the next worker for
-- those that were killed. $1 owners.
-- Served by: the primary key of node; there are as many rows as there ever were nodes at once.
update node set owner = '', fence = fence + 1 where owner = any($1::text[])
