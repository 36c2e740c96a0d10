package tenure.bench;

import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/** Redisson's locks as one task has them: with its own choice of leases, renewed by its watchdog. */
final class Locks {
    private final Options options;
    private final RedissonClient client;

    Locks(Options options) {
        this.options = options;
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        String lease = options.text("lease-ms", "");
        if (!lease.isEmpty()) {
            config.setLockWatchdogTimeout(Long.parseLong(lease));
        }
        config.useSingleServer().setAddress(options.text("url", "")).setDnsMonitoringInterval(-1);
        client = Redisson.create(config);
    }

    /** One lock of one name. */
    interface Lock {
        /** Waits for it; the token, or -1 if it has none. */
        long acquire(boolean write) throws InterruptedException;

        void release();
    }

    Lock named(String name) {
        return switch (options.text("mode", "mutex")) {
            case "rw" -> shared(client.getReadWriteLock(name));
            case "semaphore" -> permits(client.getPermitExpirableSemaphore(name));
            case "fair" -> plain(client.getFairLock(name));
            default -> switch (options.text("contender", "")) {
                case "redisson-fenced" -> fenced(client.getFencedLock(name));
                case "redisson-fair" -> plain(client.getFairLock(name));
                default -> plain(client.getLock(name));
            };
        };
    }

    private static Lock plain(RLock lock) {
        return new Lock() {
            @Override
            public long acquire(boolean write) {
                lock.lock();
                return -1;
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    private static Lock fenced(RFencedLock lock) {
        return new Lock() {
            @Override
            public long acquire(boolean write) {
                return lock.lockAndGetToken();
            }

            @Override
            public void release() {
                lock.unlock();
            }
        };
    }

    private static Lock shared(RReadWriteLock lock) {
        return new Lock() {
            private RLock held;

            @Override
            public long acquire(boolean write) {
                held = write ? lock.writeLock() : lock.readLock();
                held.lock();
                return -1;
            }

            @Override
            public void release() {
                held.unlock();
            }
        };
    }

    private static Lock permits(RPermitExpirableSemaphore semaphore) {
        semaphore.trySetPermits(8);
        return new Lock() {
            private String permit;

            @Override
            public long acquire(boolean write) throws InterruptedException {
                permit = semaphore.acquire();
                return -1;
            }

            @Override
            public void release() {
                semaphore.release(permit);
            }
        };
    }
}
