
-- Returns the largest token seen, and whether there was something to delete.
raise()
return {token, tostring(redis.call('DEL', KEYS[2]))}
