-- Fails where the ledger was never installed. Primary keys.
select (select count(*) from twophase_spark_batch where group_id = ''),
       (select count(*) from twophase_spark_writer where writer = 0),
       (select count(*) from twophase_spark_message where writer = 0)
