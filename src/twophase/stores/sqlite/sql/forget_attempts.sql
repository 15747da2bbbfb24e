-- Removes attempts by key. A row: id.
-- Served by: the primary key of attempt.
delete from attempt where id in (values (?))
