
-- ARGV, further: the value, its time to live in milliseconds (0: none). Returns the largest token seen.
raise()
if ARGV[4] == '0' then
  redis.call('SET', KEYS[2], ARGV[3])
else
  redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
end
return {token}
