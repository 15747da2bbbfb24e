-- Written once and never changed: a copy of the database keeps it, another database has another.
insert into {meta} (name, value) values ('{identity}', :identity)
