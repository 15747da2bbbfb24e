-- A witness inside the database, of two things that no end state shows: it trusts nothing but the node table's columns
-- id, epoch, fence, owner, flushes and seen_ms. {lease_ms} is filled in.
--
-- The fence holds: a place's flushes come from the node that last raised its fence, and from no other. Each node has a
-- database user of its own, by which it is known here, whatever connection it uses.
-- The lease holds: nobody loses a place within a lease of his last sign of life.
create table witness_holder (node integer, fence bigint, who name, primary key (node, fence));
create table witness_violation (what text not null);

create function witness_node() returns trigger language plpgsql as $body$
begin
    if tg_op = 'INSERT' then
        insert into witness_holder values (new.id, new.fence, session_user);
        return null;
    end if;
    if new.fence <> old.fence then
        insert into witness_holder values (new.id, new.fence, session_user) on conflict do nothing;
    end if;
    if new.flushes <> old.flushes and not exists (
        select from witness_holder as holder
        where holder.node = new.id and holder.fence = new.fence and holder.who = session_user
    ) then
        insert into witness_violation
        values (format('a flush of %s at place %s passed fence %s, which another node had raised', session_user, new.id, new.fence));
    end if;
    if old.owner <> '' and new.owner <> old.owner and (new.owner <> '' or new.epoch <> old.epoch)
        and floor(extract(epoch from clock_timestamp()) * 1000) - old.seen_ms < {lease_ms}
    then
        insert into witness_violation
        values (format('place %s was taken from its holder %s ms after it was seen', new.id,
            floor(extract(epoch from clock_timestamp()) * 1000) - old.seen_ms));
    end if;
    return null;
end $body$;

create trigger witness_node after insert or update on node for each row execute function witness_node();
