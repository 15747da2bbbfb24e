select release_lock(concat('twophase.install.', coalesce(database(), '')))
