-- The same in one statement, a third of the time for thousands. The primary key refuses a key twice in one task.
insert into twophase_spark_message (writer, gid) select :writer, unnest(cast(:gids as text[]))
