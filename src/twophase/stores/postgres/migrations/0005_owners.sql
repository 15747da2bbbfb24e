-- Messages have an owner: the name of its producer's token. Null: from before, or no token was needed.
-- The flushes with owners stand beside those of version 4, which go on without.
alter table message add column owner text;
alter table history add column owner text;

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

create or replace function twophase_flush(
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
