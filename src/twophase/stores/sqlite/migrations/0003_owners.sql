-- Messages have an owner: the name of its producer's token. Null: from before, or no token was needed.
alter table message add column owner text;
alter table history add column owner text;
