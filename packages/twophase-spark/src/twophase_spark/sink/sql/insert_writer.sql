-- Primary key.
insert into twophase_spark_writer (writer, group_id) values (:writer, :group_id)
