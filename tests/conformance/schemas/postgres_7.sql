-- The store of coordinators on one database, as of the newest schema version. An older one reaches it through
-- migrations/. The tables stand in the current schema of the store's URL; the functions of flush.sql, audit.sql and adopt.sql go with them.

-- Live messages. Small: a message leaves it the moment it is final. Every change moves the row (due_ms is in an
-- index), so dead rows are many and short-lived: they are cleaned early and without pauses. `owner` is the name of the
-- producer's token; null: none was needed.
create table message (
    due_ms bigint not null,
    created_ms bigint not null,
    decided_ms bigint not null,
    done bigint not null,
    node integer not null,
    epoch integer not null,
    version integer not null,
    attempts integer not null,
    state smallint not null check (state in (2, 3)),
    parked boolean not null,
    gid text collate "C" not null,
    decided_by text not null,
    body bytea not null,
    owner text,
    constraint message_pkey primary key (gid)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2
);

-- What a node must do next, in order. State and times ride along so that counts are read from here alone.
create index message_due on message (node, epoch, due_ms, gid) include (state, created_ms, decided_ms)
    where not parked;
create index message_parked on message (node, epoch, gid) include (state, created_ms, decided_ms) where parked;

-- What is undecided, by age: the horizon of barrier cleaning asks for the oldest.
create index message_prepared on message (created_ms, gid) where state = 2;

-- Final messages, append-only. (node, seq) grows in commit order and is never used twice.
create table history (
    seq bigint not null,
    created_ms bigint not null,
    decided_ms bigint not null,
    finished_ms bigint not null,
    done bigint not null,
    node integer not null,
    attempts integer not null,
    state smallint not null check (state in (4, 5)),
    gid text collate "C" not null,
    decided_by text not null,
    reason text not null,
    body bytea not null,
    owner text,
    constraint history_pkey primary key (node, seq)
) with (autovacuum_vacuum_scale_factor = 0.05);
create unique index history_gid on history (gid);

-- What went wrong, and what operators did. Append-only.
create table attempt (
    id bigint generated always as identity,
    at_ms bigint not null,
    status integer not null,
    latency_ms integer not null,
    gid text collate "C" not null,
    kind text not null,
    branch_id text not null,
    target text not null,
    result text not null,
    error text not null,
    constraint attempt_pkey primary key (gid, id)
);
create index attempt_at on attempt (at_ms, id);

-- Places. A server process holds one by a lease: every flush first advances the row under `fence`.
--   epoch   one tenure; rows carry (node, epoch). It ends when the lease was missed and others take the rows.
--   fence   what a flush presents; grows whenever an older one must not be written any more.
--   owner   a secret of the process that holds the place, a slash, and its lease in ms; '' when nobody does.
--   seq     the last history number used.
--   flushes, refused, seen_ms   how many flushes were committed, what the last one refused, and when it was:
--           by these a process whose connection was lost learns what became of its flush.
create table node (
    id integer not null,
    epoch integer not null,
    fence bigint not null,
    owner text not null,
    seq bigint not null,
    flushes bigint not null,
    seen_ms bigint not null,
    refused integer[] not null,
    constraint node_pkey primary key (id)
) with (fillfactor = 10, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

create table store_meta (
    name text not null,
    value bigint not null,
    constraint store_meta_pkey primary key (name)
);
insert into store_meta (name, value) values ('schema_version', 7), ('history_horizon_ms', 0);

-- Topics: who is called for `topic://name`. `id` is the revision that made it, so a topic that is made anew is another;
-- `version` counts its changes.
create table topic (
    id bigint not null,
    created_ms bigint not null,
    changed_ms bigint not null,
    version integer not null,
    name text collate "C" not null,
    subscribers text not null,
    constraint topic_pkey primary key (name)
);

-- Grows by one with every change of any topic, in the same commit.
insert into store_meta (name, value) values ('topics_revision', 0);

-- The audit log: a row for each operator's act, written in the transaction of the act. Append-only, in the order of `seq`,
-- which all nodes share. `hash` covers the row and `previous`, the hash of the row before.
create table audit_log (
    seq bigint not null,
    at_ms bigint not null,
    node integer not null,
    who text not null,
    peer text not null,
    act text not null,
    target text not null,
    reason text not null,
    state_before text not null,
    state_after text not null,
    previous text not null,
    hash text not null,
    constraint audit_log_pkey primary key (seq)
);

-- Both ends of the chain: the last row, and the last row that cleaning has removed. A transaction with an act locks it,
-- last of all that it locks, so that nodes append one after the other.
create table audit_head (
    id integer not null check (id = 1),
    seq bigint not null,
    hash text not null,
    anchor_seq bigint not null,
    anchor_hash text not null,
    constraint audit_head_pkey primary key (id)
);
insert into audit_head (id, seq, hash, anchor_seq, anchor_hash) values (1, 0, '0000000000000000000000000000000000000000000000000000000000000000', 0, '0000000000000000000000000000000000000000000000000000000000000000');

-- The tokens that a server has last read from its file, so that a change of the file is noticed: what each name may do.
create table token_seen (
    name text collate "C" not null,
    description text not null,
    constraint token_seen_pkey primary key (name)
);

-- Grows by one with every noticed change of tokens, in the same commit.
insert into store_meta (name, value) values ('tokens_revision', 0);

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

-- One flush: fence, finishes, decisions, other changes, new messages, evidence; one call, one commit.
--
-- Not one statement, but one after the other in a volatile function: each has a snapshot of its own, which is what
-- makes the look into history behind the inserts see a history row that came while an insert waited (correctness 18).
-- The client never says BEGIN, so that a client that was stopped holds no lock (19).
--
-- Arrays of one kind are null when there is none of it. One whose values are all the same has a single element, or is
-- null for nothing but nulls: most are, and each array costs the driver and the database about as much as a gid does.
-- So `unnest` pads with nulls, and the first element stands in. Returns null when the fence is down; else
-- {at_ms, horizon_ms, refused…}, where refused are places from 1 over finishes, decides, changes, inserts in turn.
--
-- The planner's settings are the function's own, as a pooler may hand us any session: a plan is made once, when the
-- tables may be empty, and must be the one that is right when they are large.
-- That takes care in writing, too. `message.gid = any (array[item.gid])` says what `message.gid = item.gid` says, but
-- can only be looked up by the index, for each item; the latter, planned while the table is nearly empty as it often is,
-- walks the table and compares each row with all items. A scalar sub-select likewise cannot become a join.
-- Served by: the primary keys of node, message and store_meta, history_gid.
create function twophase_flush_owned(
    of_node integer, of_epoch integer, of_fence bigint, clock_ms bigint, oldest_born_ms bigint,
    finish_gids text[], finish_versions integer[], finish_states smallint[], finish_reasons text[],
    finish_deciders text[], finish_attempts integer[], finish_dones bigint[],
    decide_gids text[], decide_versions integer[], decide_due_ins bigint[], decide_deciders text[],
    decide_bodies bytea[],
    change_gids text[], change_versions integer[], change_dues bigint[], change_attempts integer[],
    change_dones bigint[], change_parkeds boolean[],
    insert_gids text[], insert_states smallint[], insert_due_ins bigint[], insert_bodies bytea[],
    attempt_gids text[], attempt_kinds text[], attempt_branch_ids text[], attempt_targets text[],
    attempt_at_ms bigint[], attempt_statuses integer[], attempt_latencies_ms integer[], attempt_results text[],
    attempt_errors text[],
    insert_owners text[]
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
    finishing constant integer := coalesce(cardinality(finish_gids), 0);
    deciding constant integer := coalesce(cardinality(decide_gids), 0);
    changing constant integer := coalesce(cardinality(change_gids), 0);
    inserting constant integer := coalesce(cardinality(insert_gids), 0);
    -- What stands in for the values of a column that has one element.
    finish_version constant integer := finish_versions[1];
    finish_state constant smallint := finish_states[1];
    finish_reason constant text := finish_reasons[1];
    finish_decider constant text := finish_deciders[1];
    finish_attempt constant integer := finish_attempts[1];
    finish_done constant bigint := finish_dones[1];
    decide_version constant integer := decide_versions[1];
    decide_due_in constant bigint := decide_due_ins[1];
    decide_decider constant text := decide_deciders[1];
    insert_state constant smallint := insert_states[1];
    insert_due_in constant bigint := insert_due_ins[1];
    insert_owner constant text := insert_owners[1];
    now_ms bigint;
    seq_before bigint;
    applied integer;
    finished integer := 0;
    horizon_ms bigint := 0;
    known text[];
    refusals integer[] := '{}';
begin
    update node set
        seq = node.seq + finishing, flushes = node.flushes + 1, refused = '{}',
        seen_ms = coalesce(clock_ms, floor(extract(epoch from clock_timestamp()) * 1000)::bigint)
    where node.id = of_node and node.fence = of_fence
    returning node.seen_ms, node.seq - finishing into now_ms, seq_before;
    if not found then
        return null;
    end if;

    if finishing > 0 then
        with gone as (
            delete from message
            using unnest(
                finish_gids, finish_versions, finish_states, finish_reasons, finish_deciders, finish_attempts,
                finish_dones
            ) with ordinality as item (gid, version, state, reason, decider, attempts, done, place)
            where message.gid = any (array[item.gid]) and message.version = coalesce(item.version, finish_version)
            returning
                item.place, message.gid, coalesce(item.state, finish_state) as state, message.created_ms,
                message.decided_ms, message.decided_by, coalesce(item.decider, finish_decider) as decider,
                coalesce(item.reason, finish_reason) as reason, coalesce(item.attempts, finish_attempt) as attempts,
                coalesce(item.done, finish_done) as done, message.body, message.owner
        )
        insert into history
            (node, seq, gid, state, created_ms, decided_ms, finished_ms, decided_by, reason, attempts, done, body, owner)
        select
            of_node, seq_before + row_number() over (order by gone.place), gone.gid, gone.state, gone.created_ms,
            case gone.decider when '' then gone.decided_ms else now_ms end, now_ms,
            case gone.decider when '' then gone.decided_by else gone.decider end,
            gone.reason, gone.attempts, gone.done, gone.body, gone.owner
        from gone;
        get diagnostics finished = row_count;
        if finished <> finishing then
            refusals := refusals || array(
                select item.place::integer
                from unnest(finish_gids) with ordinality as item (gid, place)
                where (
                    select true from history where history.gid = item.gid and history.xmin = pg_current_xact_id()::xid
                ) is null
            );
        end if;
    end if;

    if deciding > 0 then
        update message set
            state = 3, node = of_node, epoch = of_epoch, version = message.version + 1,
            due_ms = now_ms + coalesce(item.due_in, decide_due_in), decided_ms = now_ms,
            decided_by = coalesce(item.decider, decide_decider),
            attempts = 0, parked = false, done = 0, body = coalesce(item.body, message.body)
        from unnest(decide_gids, decide_versions, decide_due_ins, decide_deciders, decide_bodies)
            as item (gid, version, due_in, decider, body)
        -- "+ 0": else a plan made over empty tables reads message_prepared from end to end, and is kept.
        where message.gid = any (array[item.gid]) and message.version = coalesce(item.version, decide_version)
            and message.state + 0 = 2;
        get diagnostics applied = row_count;
        if applied <> deciding then
            refusals := refusals || array(
                select finishing + item.place::integer
                from unnest(decide_gids) with ordinality as item (gid, place)
                where (
                    select true from message where message.gid = item.gid and message.xmin = pg_current_xact_id()::xid
                ) is null
            );
        end if;
    end if;

    if changing > 0 then
        update message set
            node = of_node, epoch = of_epoch, version = message.version + 1, due_ms = item.due,
            attempts = coalesce(item.attempts, message.attempts), done = coalesce(item.done, message.done),
            parked = coalesce(item.parked, message.parked)
        from unnest(change_gids, change_versions, change_dues, change_attempts, change_dones, change_parkeds)
            as item (gid, version, due, attempts, done, parked)
        where message.gid = any (array[item.gid]) and message.version = item.version;
        get diagnostics applied = row_count;
        if applied <> changing then
            refusals := refusals || array(
                select finishing + deciding + item.place::integer
                from unnest(change_gids) with ordinality as item (gid, place)
                where (
                    select true from message where message.gid = item.gid and message.xmin = pg_current_xact_id()::xid
                ) is null
            );
        end if;
    end if;

    if inserting > 0 then
        insert into message
            (gid, state, node, epoch, version, due_ms, created_ms, decided_ms, decided_by, attempts, parked, done, body,
            owner)
        select
            item.gid, coalesce(item.state, insert_state), of_node, of_epoch, 1,
            now_ms + coalesce(item.due_in, insert_due_in), now_ms,
            case coalesce(item.state, insert_state) when 3 then now_ms else 0 end,
            case coalesce(item.state, insert_state) when 3 then 'submit' else '' end,
            0, false, 0, item.body, nullif(coalesce(item.owner, insert_owner), '')
        from unnest(insert_gids, insert_states, insert_due_ins, insert_bodies, insert_owners)
            as item (gid, state, due_in, body, owner)
        on conflict do nothing;
        get diagnostics applied = row_count;
        -- Only now, with a snapshot that is younger than the inserts: history, and the horizon below which it is cut.
        select
            store_meta.value,
            array(
                select item.gid from unnest(insert_gids) as item (gid)
                where (select true from history where history.gid = item.gid)
            )
        into horizon_ms, known
        from store_meta where store_meta.name = 'history_horizon_ms';
        if oldest_born_ms < horizon_ms then
            raise exception 'a gid is older than history' using errcode = 'TP015', detail = horizon_ms::text;
        end if;
        if cardinality(known) > 0 then
            delete from message where message.gid = any (known) and message.xmin = pg_current_xact_id()::xid;
        end if;
        if applied <> inserting or cardinality(known) > 0 then
            refusals := refusals || array(
                select finishing + deciding + changing + item.place::integer
                from unnest(insert_gids) with ordinality as item (gid, place)
                where (
                    select true from message where message.gid = item.gid and message.xmin = pg_current_xact_id()::xid
                ) is null
            );
        end if;
    end if;

    if attempt_gids is not null then
        insert into attempt (gid, kind, branch_id, target, at_ms, status, latency_ms, result, error)
        select * from unnest(
            attempt_gids, attempt_kinds, attempt_branch_ids, attempt_targets, attempt_at_ms, attempt_statuses,
            attempt_latencies_ms, attempt_results, attempt_errors
        );
    end if;

    if cardinality(refusals) > 0 then
        -- History has no gaps, and whoever loses this answer on the way finds it here.
        update node set seq = seq_before + finished, refused = refusals where node.id = of_node;
    end if;
    return array[now_ms, horizon_ms] || refusals::bigint[];
end;
$function$;

-- A flush with new messages that were begun at another coordinator: twophase_flush_owned, and then their births, in the same
-- commit. The last array has a birth for each new message, null for one that is born now.
-- Beside twophase_flush_owned, as messages are seldom taken over, and every flush would carry the column.
-- Served by: what twophase_flush_owned names, and the primary key of message.
create function twophase_flush_born_owned(
    of_node integer, of_epoch integer, of_fence bigint, clock_ms bigint, oldest_born_ms bigint,
    finish_gids text[], finish_versions integer[], finish_states smallint[], finish_reasons text[],
    finish_deciders text[], finish_attempts integer[], finish_dones bigint[],
    decide_gids text[], decide_versions integer[], decide_due_ins bigint[], decide_deciders text[],
    decide_bodies bytea[],
    change_gids text[], change_versions integer[], change_dues bigint[], change_attempts integer[],
    change_dones bigint[], change_parkeds boolean[],
    insert_gids text[], insert_states smallint[], insert_due_ins bigint[], insert_bodies bytea[],
    attempt_gids text[], attempt_kinds text[], attempt_branch_ids text[], attempt_targets text[],
    attempt_at_ms bigint[], attempt_statuses integer[], attempt_latencies_ms integer[], attempt_results text[],
    attempt_errors text[],
    insert_births_ms bigint[],
    insert_owners text[]
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
    answer bigint[];
begin
    answer := twophase_flush_owned(
        of_node, of_epoch, of_fence, clock_ms, oldest_born_ms, finish_gids, finish_versions, finish_states,
        finish_reasons, finish_deciders, finish_attempts, finish_dones, decide_gids, decide_versions, decide_due_ins,
        decide_deciders, decide_bodies, change_gids, change_versions, change_dues, change_attempts, change_dones,
        change_parkeds, insert_gids, insert_states, insert_due_ins, insert_bodies, attempt_gids, attempt_kinds,
        attempt_branch_ids, attempt_targets, attempt_at_ms, attempt_statuses, attempt_latencies_ms, attempt_results,
        attempt_errors, insert_owners
    );
    if answer is not null then
        update message set created_ms = item.born
        from unnest(insert_gids, insert_births_ms) as item (gid, born)
        where message.gid = any (array[item.gid]) and message.xmin = pg_current_xact_id()::xid
            and item.born is not null;
    end if;
    return answer;
end
$function$;

-- The flushes of nodes of version 4, which know no owners. A later version takes them away.
-- Served by: what twophase_flush_owned names.
create function twophase_flush(
    of_node integer, of_epoch integer, of_fence bigint, clock_ms bigint, oldest_born_ms bigint,
    finish_gids text[], finish_versions integer[], finish_states smallint[], finish_reasons text[],
    finish_deciders text[], finish_attempts integer[], finish_dones bigint[],
    decide_gids text[], decide_versions integer[], decide_due_ins bigint[], decide_deciders text[],
    decide_bodies bytea[],
    change_gids text[], change_versions integer[], change_dues bigint[], change_attempts integer[],
    change_dones bigint[], change_parkeds boolean[],
    insert_gids text[], insert_states smallint[], insert_due_ins bigint[], insert_bodies bytea[],
    attempt_gids text[], attempt_kinds text[], attempt_branch_ids text[], attempt_targets text[],
    attempt_at_ms bigint[], attempt_statuses integer[], attempt_latencies_ms integer[], attempt_results text[],
    attempt_errors text[]
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
begin
    return twophase_flush_owned(
        of_node, of_epoch, of_fence, clock_ms, oldest_born_ms, finish_gids, finish_versions, finish_states,
        finish_reasons, finish_deciders, finish_attempts, finish_dones, decide_gids, decide_versions,
        decide_due_ins, decide_deciders, decide_bodies, change_gids, change_versions, change_dues,
        change_attempts, change_dones, change_parkeds, insert_gids, insert_states, insert_due_ins,
        insert_bodies, attempt_gids, attempt_kinds, attempt_branch_ids, attempt_targets, attempt_at_ms,
        attempt_statuses, attempt_latencies_ms, attempt_results, attempt_errors, null
    );
end
$function$;

create function twophase_flush_born(
    of_node integer, of_epoch integer, of_fence bigint, clock_ms bigint, oldest_born_ms bigint,
    finish_gids text[], finish_versions integer[], finish_states smallint[], finish_reasons text[],
    finish_deciders text[], finish_attempts integer[], finish_dones bigint[],
    decide_gids text[], decide_versions integer[], decide_due_ins bigint[], decide_deciders text[],
    decide_bodies bytea[],
    change_gids text[], change_versions integer[], change_dues bigint[], change_attempts integer[],
    change_dones bigint[], change_parkeds boolean[],
    insert_gids text[], insert_states smallint[], insert_due_ins bigint[], insert_bodies bytea[],
    attempt_gids text[], attempt_kinds text[], attempt_branch_ids text[], attempt_targets text[],
    attempt_at_ms bigint[], attempt_statuses integer[], attempt_latencies_ms integer[], attempt_results text[],
    attempt_errors text[],
    insert_births_ms bigint[]
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
    answer bigint[];
begin
    answer := twophase_flush(
        of_node, of_epoch, of_fence, clock_ms, oldest_born_ms, finish_gids, finish_versions, finish_states,
        finish_reasons, finish_deciders, finish_attempts, finish_dones, decide_gids, decide_versions, decide_due_ins,
        decide_deciders, decide_bodies, change_gids, change_versions, change_dues, change_attempts, change_dones,
        change_parkeds, insert_gids, insert_states, insert_due_ins, insert_bodies, attempt_gids, attempt_kinds,
        attempt_branch_ids, attempt_targets, attempt_at_ms, attempt_statuses, attempt_latencies_ms, attempt_results,
        attempt_errors
    );
    if answer is not null then
        update message set created_ms = item.born
        from unnest(insert_gids, insert_births_ms) as item (gid, born)
        where message.gid = any (array[item.gid]) and message.xmin = pg_current_xact_id()::xid
            and item.born is not null;
    end if;
    return answer;
end
$function$;

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

-- Appends the acts of a flush to the audit log, in the transaction of the flush; `answer` is the flush's, and is returned.
--
-- Arrays have an element an act. `places` are the items that the acts changed, from 1 as in the answer: an act whose item
-- was refused has no row. Null: no item. The arrays are null where there is no act.
-- The hash is that of `core/audit_log.py`: each value as its length in bytes, a colon and its text.
-- Served by: the primary keys of audit_head and audit_log.
create function twophase_audit(
    answer bigint[], of_node integer, places integer[], whos text[], peers text[], acts text[], targets text[],
    reasons text[], befores text[], afters text[]
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
    last_hash text;
    new_hash text;
    entry record;
begin
    if answer is null or acts is null then
        return answer;
    end if;
    select audit_head.seq, audit_head.hash into last_seq, last_hash
    from audit_head where audit_head.id = 1 for update;
    for entry in
        select item.* from unnest(places, whos, peers, acts, targets, reasons, befores, afters)
            as item (place, who, peer, act, target, reason, state_before, state_after)
        where item.place is null or item.place <> all (answer[3:])
    loop
        select last_seq + 1, encode(sha256(string_agg(
            convert_to(octet_length(convert_to(part.value, 'UTF8')) || ':' || part.value, 'UTF8'), ''::bytea
            order by part.place
        )), 'hex')
        into last_seq, new_hash
        from unnest(array[
            last_hash, (last_seq + 1)::text, answer[1]::text, of_node::text, entry.who, entry.peer, entry.act, entry.target,
            entry.reason, entry.state_before, entry.state_after
        ]) with ordinality as part (value, place);
        insert into audit_log
            (seq, at_ms, node, who, peer, act, target, reason, state_before, state_after, previous, hash)
        values (
            last_seq, answer[1], of_node, entry.who, entry.peer, entry.act, entry.target, entry.reason,
            entry.state_before, entry.state_after, last_hash, new_hash
        );
        last_hash := new_hash;
    end loop;
    update audit_head set seq = last_seq, hash = last_hash where audit_head.id = 1;
    return answer;
end;
$function$;

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
