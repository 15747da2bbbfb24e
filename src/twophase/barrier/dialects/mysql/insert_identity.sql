-- Written once and never changed. IGNORE: another installer's row may be uncommitted when the install lock is free.
insert ignore into {meta} (name, value) values ('{identity}', :identity)
