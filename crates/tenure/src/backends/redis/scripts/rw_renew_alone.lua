-- As rw_renew.lua for a reader whose share has been extended by itself. KEYS: lock. ARGV: owner, lease.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return {0} end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {1}
