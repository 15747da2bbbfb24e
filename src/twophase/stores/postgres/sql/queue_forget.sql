-- Removes entries at the old end of each queue that nothing needs, up to the first that is younger: no clock makes a hole.
-- A group that reads the topic, and has done nothing of a queue, needs all of it.
-- In the same commit it raises the time before which entries may be gone. $1 before, $2 limit of a queue, $3 topics with a
-- bound of their own, $4 these bounds.
-- Served by: queue_counter whole (a row a queue), the primary keys of queue_entry, queue_progress and store_meta.
with old as (
    select counter.topic, counter.queue, entry.number, entry.stored_ms
    from queue_counter as counter
    cross join lateral (
        select first.number, first.stored_ms, max(first.stored_ms) over (order by first.number) as newest_ms
        from (
            select number, stored_ms from queue_entry
            where topic = counter.topic and queue = counter.queue
                and number < coalesce(
                    (
                        select min(coalesce(
                            (
                                select own.next_number from queue_progress as own
                                where own.topic = counter.topic and own.queue = counter.queue
                                    and own.consumers = reader.consumers
                            ),
                            0
                        ))
                        from queue_progress as reader where reader.topic = counter.topic
                    ),
                    counter.next_number
                )
            order by number
            limit $2
        ) as first
    ) as entry
    where entry.newest_ms < least(
        coalesce(
            (select own.before_ms from unnest($3::text[], $4::bigint[]) as own (topic, before_ms) where own.topic = counter.topic),
            $1::bigint
        ),
        (select value from store_meta where name = 'archived_until_ms')
    )
), raised as (
    insert into store_meta (name, value)
    select 'queue_horizon_ms', max(stored_ms) + 1 from old having count(*) > 0
    on conflict (name) do update set value = greatest(store_meta.value, excluded.value)
)
delete from queue_entry using old
where queue_entry.topic = any (array[old.topic]) and queue_entry.queue = old.queue and queue_entry.number = old.number
