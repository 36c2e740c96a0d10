package tenure.interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RObject;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** What each verb does to each kind. The value that is returned goes into the answer. */
final class Verbs {
    private final RedissonClient client;

    Verbs(RedissonClient client) {
        this.client = client;
    }

    String run(Order order) throws InterruptedException {
        return switch (order.verb) {
            case "take" -> take(order);
            case "try" -> attempt(order);
            case "give" -> give(order);
            case "locked" -> String.valueOf(lock(order).isLocked());
            case "held" -> String.valueOf(lock(order).isHeldByCurrentThread());
            case "ttl" -> String.valueOf(lock(order).remainTimeToLive());
            case "force" -> String.valueOf(lock(order).forceUnlock());
            case "token" -> String.valueOf(fenced(order).getToken());
            case "set" -> set(order);
            case "add" -> add(order);
            case "available" -> available(order);
            case "extend" -> extend(order);
            case "down" -> down(order);
            case "await" -> await(order);
            case "count" -> String.valueOf(latch(order).getCount());
            case "delete" -> String.valueOf(object(order).delete());
            case "crowd" -> crowd(order);
            case "pair" -> pair(order);
            default -> throw order.unknown();
        };
    }

    private String take(Order order) throws InterruptedException {
        switch (order.kind) {
            case "semaphore" -> semaphore(order).acquire(order.n());
            case "permit" -> {
                RPermitExpirableSemaphore semaphore = permits(order);
                List<String> ids = order.lease() < 0
                    ? semaphore.acquire(order.n())
                    : semaphore.acquire(order.n(), order.lease(), MILLISECONDS);
                return took(order, ids);
            }
            case "fenced" -> {
                if (order.lease() < 0) {
                    return String.valueOf(fenced(order).lockAndGetToken());
                }
                // The form that answers the token drops the lease.
                fenced(order).lock(order.lease(), MILLISECONDS);
                return String.valueOf(fenced(order).getToken());
            }
            default -> lock(order).lock(order.lease(), MILLISECONDS);
        }
        return "";
    }

    private String attempt(Order order) throws InterruptedException {
        if (order.kind.equals("permit")) {
            List<String> ids = permits(order).tryAcquire(order.n(), order.patience(), order.lease(), MILLISECONDS);
            return ids.isEmpty() ? "refused" : "taken " + took(order, ids);
        }
        boolean taken = switch (order.kind) {
            case "semaphore" -> order.waits()
                ? semaphore(order).tryAcquire(order.n(), Duration.ofMillis(order.patience()))
                : semaphore(order).tryAcquire(order.n());
            // Only without both does it ask once and leave no queue position.
            default -> order.waits() || order.lease() >= 0
                ? lock(order).tryLock(order.patience(), order.lease(), MILLISECONDS)
                : lock(order).tryLock();
        };
        if (!taken) {
            return "refused";
        }
        return order.kind.equals("fenced") ? "taken " + fenced(order).getToken() : "taken";
    }

    private static String took(Order order, List<String> ids) {
        order.permits.took(order.name, ids);
        return String.join(",", ids);
    }

    private String give(Order order) {
        switch (order.kind) {
            case "semaphore" -> semaphore(order).release(order.n());
            case "permit" -> permits(order).release(order.ids());
            default -> lock(order).unlock();
        }
        return "";
    }

    private String set(Order order) {
        return String.valueOf(switch (order.kind) {
            case "semaphore" -> semaphore(order).trySetPermits(order.number(0));
            case "permit" -> permits(order).trySetPermits(order.number(0));
            case "latch" -> latch(order).trySetCount(order.number(0));
            default -> throw order.unknown();
        });
    }

    private String add(Order order) {
        switch (order.kind) {
            case "semaphore" -> semaphore(order).addPermits(order.number(0));
            case "permit" -> permits(order).addPermits(order.number(0));
            default -> throw order.unknown();
        }
        return "";
    }

    private String available(Order order) {
        return String.valueOf(switch (order.kind) {
            case "semaphore" -> semaphore(order).availablePermits();
            case "permit" -> permits(order).availablePermits();
            default -> throw order.unknown();
        });
    }

    private String extend(Order order) {
        RPermitExpirableSemaphore semaphore = permits(order);
        boolean all = true;
        List<String> ids = order.ids();
        for (String id : ids) {
            all &= semaphore.updateLeaseTime(id, order.lease(), MILLISECONDS);
        }
        order.permits.took(order.name, ids);
        return String.valueOf(all);
    }

    private String down(Order order) {
        latch(order).countDown();
        return "";
    }

    private String await(Order order) throws InterruptedException {
        if (order.waits()) {
            return String.valueOf(latch(order).await(order.patience(), MILLISECONDS));
        }
        latch(order).await();
        return "true";
    }

    /** Counts under the lock in a way that loses counts if anybody else is in. */
    private String crowd(Order order) throws InterruptedException {
        RBucket<String> counter = client.getBucket(order.word(0), StringCodec.INSTANCE);
        int rounds = order.number(1);
        for (int i = 0; i < rounds; i++) {
            take(order);
            String seen = counter.get();
            Thread.yield();
            counter.set(String.valueOf((seen == null ? 0 : Long.parseLong(seen)) + 1));
            give(order);
        }
        return String.valueOf(rounds);
    }

    /** Reads two keys under the lock that are always written together, and writes them if it may. How often they differed. */
    private String pair(Order order) throws InterruptedException {
        RBucket<String> one = client.getBucket(order.word(0), StringCodec.INSTANCE);
        RBucket<String> two = client.getBucket(order.word(1), StringCodec.INSTANCE);
        int differed = 0;
        for (int i = order.number(2); i > 0; i--) {
            take(order);
            String seen = one.get();
            Thread.yield();
            if (!Objects.equals(seen, two.get())) {
                differed++;
            }
            if (order.kind.equals("write")) {
                String next = String.valueOf((seen == null ? 0 : Long.parseLong(seen)) + 1);
                one.set(next);
                Thread.yield();
                two.set(next);
            }
            give(order);
        }
        return String.valueOf(differed);
    }

    private RObject object(Order order) {
        return switch (order.kind) {
            case "semaphore" -> semaphore(order);
            case "permit" -> permits(order);
            case "latch" -> latch(order);
            default -> (RObject) lock(order);
        };
    }

    private RLock lock(Order order) {
        return switch (order.kind) {
            case "lock" -> client.getLock(order.name);
            case "fenced" -> fenced(order);
            case "fair" -> client.getFairLock(order.name);
            case "read" -> client.getReadWriteLock(order.name).readLock();
            case "write" -> client.getReadWriteLock(order.name).writeLock();
            default -> throw order.unknown();
        };
    }

    private RFencedLock fenced(Order order) {
        if (!order.kind.equals("fenced")) {
            throw order.unknown();
        }
        return client.getFencedLock(order.name);
    }

    private RSemaphore semaphore(Order order) {
        return client.getSemaphore(order.name);
    }

    private RPermitExpirableSemaphore permits(Order order) {
        if (!order.kind.equals("permit")) {
            throw order.unknown();
        }
        return client.getPermitExpirableSemaphore(order.name);
    }

    private RCountDownLatch latch(Order order) {
        if (!order.kind.equals("latch")) {
            throw order.unknown();
        }
        return client.getCountDownLatch(order.name);
    }
}
