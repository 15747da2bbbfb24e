-- What the publisher's latest batch had. Served by twophase_spark_batch_publisher.
select key_columns from twophase_spark_batch where publisher = :publisher order by begun_ms desc limit 1
