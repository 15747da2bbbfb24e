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
