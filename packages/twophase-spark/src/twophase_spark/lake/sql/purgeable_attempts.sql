-- What a file of attempts still has in the store, old enough and of no live message. ? first and ? last id, ? and ? the
-- times of the file, ? made before.
-- Served by: attempt_at on PostgreSQL, the primary key of attempt on SQLite; the primary key of message.
select id, gid, at_ms from attempt
where id >= ? and id <= ? and at_ms >= ? and at_ms < ? and at_ms < ?
    and not exists (select 1 from message where message.gid = attempt.gid)
order by id
