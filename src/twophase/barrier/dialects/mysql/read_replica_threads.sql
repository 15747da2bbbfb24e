-- For users who may not see the channels: those of them that run now. MySQL does not say it to them.
show global status where variable_name = 'Slaves_running' and value > 0
