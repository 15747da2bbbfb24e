-- One step of adoption: the tenures of whoever missed the lease end first, in statements of their own; only then, with a
-- snapshot that sees what their last flushes committed, rows that no tenure holds change their owner (correctness 19).
-- Rows of a tenure that stands are never touched. Like a flush it begins with the fence, and is one call.
--
-- A place that was given back keeps its epoch, and its rows, for the next process that takes it; when rows are found
-- there first, that tenure ends too. Rows are found place by place (lateral): a join could be planned as a walk over the
-- table, see flush.sql.
--
-- Rows that somebody is changing at this moment are left out. Only a step that got nothing waits, for one of them, and
-- looks again: a step that holds rows never waits for another, or two nodes that adopt at once wait for each other's.
-- What is still being changed then becomes that node's, or comes with the next heartbeat's steps.
-- Returns how many rows came; null when the fence is down.
-- Served by: the primary keys of node and message, message_due, message_parked.
create function twophase_adopt(
    of_node integer, of_epoch integer, of_fence bigint, clock_ms bigint, lease_ms bigint, rows_max integer,
    end_tenures boolean
) returns integer
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
    now_ms bigint;
    came integer;
    total integer := 0;
    held_gid text;
    held_node integer;
    held_epoch integer;
begin
    update node set
        seen_ms = coalesce(clock_ms, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
    where node.id = of_node and node.fence = of_fence
    returning node.seen_ms into now_ms;
    if not found then
        return null;
    end if;

    if end_tenures then
        update node set epoch = node.epoch + 1, fence = node.fence + 1, owner = ''
        where node.id = any (array(
            select silent.id from node as silent
            where silent.id <> of_node and silent.owner <> '' and silent.seen_ms < now_ms - lease_ms
            for update skip locked
        ));
    end if;
    update node set epoch = node.epoch + 1, fence = node.fence + 1
    where node.id = any (array(
        select vacant.id from node as vacant
        where vacant.id <> of_node and vacant.owner = ''
            and coalesce(
                (
                    select true from message
                    where message.node = vacant.id and message.epoch = vacant.epoch and not message.parked limit 1
                ), (
                    select true from message
                    where message.node = vacant.id and message.epoch = vacant.epoch and message.parked limit 1
                )
            )
        for update skip locked
    ));

    for turn in 1 .. 2 loop
        update message set node = of_node, epoch = of_epoch
        where message.gid = any (array(
            select orphan.gid
            from node cross join lateral (
                select message.gid from message
                where message.node = node.id and message.epoch < node.epoch and not message.parked
                limit rows_max - total
                for update skip locked
            ) as orphan
            limit rows_max - total
        ));
        get diagnostics came = row_count;
        total := total + came;

        update message set node = of_node, epoch = of_epoch
        where message.gid = any (array(
            select orphan.gid
            from node cross join lateral (
                select message.gid from message
                where message.node = node.id and message.epoch < node.epoch and message.parked
                limit rows_max - total
                for update skip locked
            ) as orphan
            limit rows_max - total
        ));
        get diagnostics came = row_count;
        total := total + came;
        exit when total > 0 or turn = 2;

        -- All that is left is being changed. Wait for one row, found without a lock, while no other message is held.
        select orphan.gid, orphan.node, orphan.epoch into held_gid, held_node, held_epoch
        from node cross join lateral (
            (
                select message.gid, message.node, message.epoch from message
                where message.node = node.id and message.epoch < node.epoch and not message.parked
                limit 1
            ) union all (
                select message.gid, message.node, message.epoch from message
                where message.node = node.id and message.epoch < node.epoch and message.parked
                limit 1
            )
        ) as orphan
        limit 1;
        exit when not found;
        -- "+ 0": else a plan made over empty tables walks all the place's rows, and is kept.
        update message set node = of_node, epoch = of_epoch
        where message.gid = held_gid and message.node + 0 = held_node and message.epoch + 0 = held_epoch;
        get diagnostics total = row_count;
    end loop;
    return total;
end;
$function$;
