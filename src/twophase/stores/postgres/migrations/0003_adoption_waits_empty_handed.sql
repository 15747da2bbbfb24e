-- A step of adoption that holds rows no longer waits for others', see adopt.sql. It is called as before, so that nodes of
-- version 2 go on.
create or replace function twophase_adopt(
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
