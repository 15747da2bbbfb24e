-- Topics of queues, and groups of consumers; `text` has their settings.
create table queue_definition (
    kind text collate "C" not null,
    name text collate "C" not null,
    text text not null,
    constraint queue_definition_pkey primary key (kind, name)
);

-- The next number of each queue. A flush that appends locks the row until its commit, so that numbers are seen in their
-- order and without gaps.
create table queue_counter (
    next_number bigint not null,
    queue integer not null,
    topic text collate "C" not null,
    constraint queue_counter_pkey primary key (topic, queue)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What is in the queues. The body stands in the row of `gid`, live or history. No branch is ever there twice.
create table queue_entry (
    number bigint not null,
    stored_ms bigint not null,
    queue integer not null,
    branch integer not null,
    topic text collate "C" not null,
    gid text collate "C" not null,
    constraint queue_entry_pkey primary key (topic, queue, number)
) with (autovacuum_vacuum_scale_factor = 0.05);
create unique index queue_entry_gid on queue_entry (gid, branch);

-- What a group of consumers has done of a queue: all below `next_number`, and what `unfinished` says.
create table queue_progress (
    next_number bigint not null,
    changed_ms bigint not null,
    queue integer not null,
    consumers text collate "C" not null,
    topic text collate "C" not null,
    unfinished bytea not null,
    constraint queue_progress_pkey primary key (topic, queue, consumers)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What queues add to a flush, in its transaction: messages that enter history at once, new entries, and the progress of groups.
-- `answer` is the flush's. Returned are it, -1, and a number for each entry, -1 where its message was refused.
--
-- A message that is complete comes through the flush as a new submitted one without a body, which takes its gid and makes the look
-- into history as for every other. Here its row moves into history, with its body, before anybody sees it.
-- Counters are locked in the order of their keys, after everything else, until the commit.
-- Arrays of one kind are null when there is none of it. `entry_places`: the message of an entry, as a place of the answer.
-- Served by: the primary keys of message, node, queue_counter and queue_progress.
create function twophase_append(
    answer bigint[], of_node integer,
    complete_gids text[], complete_dones bigint[], complete_bodies bytea[],
    entry_places integer[], entry_topics text[], entry_queues integer[], entry_gids text[], entry_branches integer[],
    progress_groups text[], progress_topics text[], progress_queues integer[], progress_nexts bigint[],
    progress_unfinished bytea[]
) returns bigint[]
language plpgsql volatile
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
set jit = off
as $function$
#variable_conflict use_column
declare
    last_seq bigint;
    completed integer;
    numbers bigint[];
begin
    if answer is null then
        return null;
    end if;
    if complete_gids is not null then
        select node.seq into last_seq from node where node.id = of_node;
        with gone as (
            delete from message
            using unnest(complete_gids, complete_dones, complete_bodies) with ordinality as item (gid, done, body, place)
            where message.gid = any (array[item.gid]) and message.xmin = pg_current_xact_id()::xid
            returning
                item.place, message.gid, message.created_ms, message.decided_ms, message.decided_by, item.done, item.body,
                message.owner
        )
        insert into history
            (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body, owner)
        select
            of_node, last_seq + row_number() over (order by gone.place), gone.gid, 4, gone.created_ms, gone.decided_ms,
            answer[1], gone.decided_by, '', 0, gone.done, gone.body, gone.owner
        from gone;
        get diagnostics completed = row_count;
        update node set seq = last_seq + completed where node.id = of_node;
    end if;

    if entry_places is not null then
        with item as (
            select
                item.*, row_number() over (partition by item.topic, item.queue order by item.place) as rank
            from unnest(entry_places, entry_topics, entry_queues, entry_gids, entry_branches) with ordinality
                as item (of_item, topic, queue, gid, branch, place)
            where item.of_item <> all (answer[3:])
        ), wanted as (
            select item.topic, item.queue, count(*) as many from item group by item.topic, item.queue
        ), counted as (
            insert into queue_counter (topic, queue, next_number)
            select wanted.topic, wanted.queue, wanted.many from wanted order by wanted.topic, wanted.queue
            on conflict (topic, queue) do update set next_number = queue_counter.next_number + excluded.next_number
            returning topic, queue, next_number
        ), numbered as (
            select item.place, item.topic, item.queue, item.gid, item.branch, next_number - many + rank - 1 as number
            from counted join wanted using (topic, queue) join item using (topic, queue)
        ), entered as (
            insert into queue_entry (topic, queue, number, gid, branch, stored_ms)
            select topic, queue, number, gid, branch, answer[1] from numbered
        )
        select array_agg(coalesce(number, -1) order by every.place) into numbers
        from generate_subscripts(entry_places, 1) as every (place) left join numbered using (place);
    end if;

    if progress_groups is not null then
        insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms)
        select item.*, answer[1] from unnest(
            progress_groups, progress_topics, progress_queues, progress_nexts, progress_unfinished
        ) as item
        on conflict (topic, queue, consumers) do update set
            next_number = excluded.next_number, unfinished = excluded.unfinished, changed_ms = excluded.changed_ms;
    end if;
    return answer || array[-1::bigint] || coalesce(numbers, '{}');
end;
$function$;
