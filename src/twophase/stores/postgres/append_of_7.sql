-- A flush of the version before, which knows no owners: its progress has the term 0, so it is refused where a topic has an owner.
-- Served by: what twophase_append_owned names.
create function twophase_append(
    answer bigint[], of_node integer,
    complete_gids text[], complete_dones bigint[], complete_bodies bytea[],
    entry_places integer[], entry_topics text[], entry_queues integer[], entry_gids text[], entry_branches integer[],
    progress_groups text[], progress_topics text[], progress_queues integer[], progress_nexts bigint[],
    progress_unfinished bytea[]
) returns bigint[]
language plpgsql volatile
set plan_cache_mode = force_generic_plan
set jit = off
as $function$
declare
    appended bigint[] := twophase_append_owned(
        answer, of_node, complete_gids, complete_dones, complete_bodies, entry_places, entry_topics, entry_queues, entry_gids,
        entry_branches, progress_groups, progress_topics, progress_queues, progress_nexts, progress_unfinished,
        array_fill(0::bigint, array[coalesce(cardinality(progress_groups), 0)])
    );
begin
    -- It does not know that progress can be refused.
    return array(
        select one.value from unnest(appended) with ordinality as one (value, place) where one.value >= -1 order by one.place
    );
end;
$function$;
