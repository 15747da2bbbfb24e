-- What a database that has run for a while has behind it: statistics, visibility, a checkpoint.
vacuum analyze message;
vacuum analyze history;
checkpoint
