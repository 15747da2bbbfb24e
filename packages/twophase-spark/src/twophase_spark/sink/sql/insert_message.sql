-- In bulk; the primary key refuses a key that comes twice in one task.
insert into twophase_spark_message (writer, gid) values (:writer, :gid)
