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
