-- A node takes the consumers of a topic: it becomes the owner, in a new term, unless the topic is another node's whose tenure stands.
-- A term is one process's, without a break: also a process that continues the slot of one before it begins a new one.
--
-- Like a flush it begins with the fence, and is one call. The owner's row is locked first, which waits for a flush of the owner
-- with progress; only then, in a statement of its own, the owner's tenure is looked at, with a snapshot that is younger.
-- Returns the term; 0 when another node is the owner; null when the fence is down.
-- Served by: the primary keys of node and queue_owner.
create function twophase_own(of_node integer, of_fence bigint, clock_ms bigint, of_topic text) returns bigint
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
    own_epoch integer;
    held_node integer;
    held_epoch integer;
    held_term bigint;
    standing integer;
begin
    update node set
        seen_ms = coalesce(clock_ms, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
    where node.id = of_node and node.fence = of_fence
    returning node.epoch into own_epoch;
    if not found then
        return null;
    end if;
    insert into queue_owner (topic, node, epoch, term) values (of_topic, 0, 0, 0) on conflict (topic) do nothing;
    select queue_owner.node, queue_owner.epoch, queue_owner.term into held_node, held_epoch, held_term
    from queue_owner where queue_owner.topic = of_topic for update;
    select node.id into standing from node
    where node.id = held_node and node.epoch = held_epoch and node.owner <> '';
    if standing <> of_node then
        return 0;
    end if;
    update queue_owner set node = of_node, epoch = own_epoch, term = held_term + 1
    where queue_owner.topic = of_topic;
    return held_term + 1;
end;
$function$;
