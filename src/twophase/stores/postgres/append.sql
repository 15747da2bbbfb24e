-- What queues add to a flush, in its transaction: messages that enter history at once, new entries, and the progress of groups.
-- `answer` is the flush's. Returned are it, -1 - place for each progress that was refused, -1, and a number for each entry, -1 where
-- its message was refused.
--
-- A message that is complete comes through the flush as a new submitted one without a body, which takes its gid and makes the look
-- into history as for every other. Here its row moves into history, with its body, before anybody sees it.
-- Counters are locked in the order of their keys, after everything else, until the commit.
-- Progress is written in the term of its topic's owner alone. The owner's row is locked until the commit, so that whoever takes the
-- topic next waits for this progress, and reads it. Where a topic has never had an owner, the term is 0.
-- Arrays of one kind are null when there is none of it. `entry_places`: the message of an entry, as a place of the answer.
-- Served by: the primary keys of message, node, queue_counter, queue_owner and queue_progress.
create function twophase_append_owned(
    answer bigint[], of_node integer,
    complete_gids text[], complete_dones bigint[], complete_bodies bytea[],
    entry_places integer[], entry_topics text[], entry_queues integer[], entry_gids text[], entry_branches integer[],
    progress_groups text[], progress_topics text[], progress_queues integer[], progress_nexts bigint[],
    progress_unfinished bytea[], progress_terms bigint[]
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
    lost integer[];
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
        with held as (
            select queue_owner.topic, queue_owner.term from queue_owner
            where queue_owner.topic = any (progress_topics) for share
        ), item as (
            select item.*, coalesce((select held.term from held where held.topic = item.topic), 0) = item.term as holds
            from unnest(
                progress_groups, progress_topics, progress_queues, progress_nexts, progress_unfinished, progress_terms
            ) with ordinality as item (consumers, topic, queue, next_number, unfinished, term, place)
        ), written as (
            insert into queue_progress (consumers, topic, queue, next_number, unfinished, changed_ms)
            select item.consumers, item.topic, item.queue, item.next_number, item.unfinished, answer[1] from item
            where item.holds
            on conflict (topic, queue, consumers) do update set
                next_number = excluded.next_number, unfinished = excluded.unfinished, changed_ms = excluded.changed_ms
        )
        select array_agg(-1 - item.place) into lost from item where not item.holds;
        if lost is not null then
            -- Whoever loses this answer on the way finds it here.
            update node set refused = node.refused || lost where node.id = of_node;
            answer := answer || lost::bigint[];
        end if;
    end if;
    return answer || array[-1::bigint] || coalesce(numbers, '{}');
end;
$function$;
