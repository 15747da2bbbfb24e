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
