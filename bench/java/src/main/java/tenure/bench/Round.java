package tenure.bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.StringJoiner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;

/** Tasks that lock and release until the time is over, or once each. */
final class Round {
    private static final long PATIENCE = 12;
    private static final int WRITES = 16;

    private final Options options;
    private final Check check;
    private final long start;
    private final long end;
    private final long cycles;
    private final int tasks;
    private final long section;
    private final AtomicLongArray inTime;
    private final AtomicLongArray total;
    private final AtomicLongArray longest;
    private final AtomicLongArray waitsSince;
    private final Counts waits = new Counts();
    private final CountDownLatch ended;
    private final AtomicReference<Throwable> fault = new AtomicReference<>();
    private volatile boolean tokens;
    private double cpuBefore = cpuMicros();

    Round(Options options, Check check, long start, long end, long cycles) {
        this.options = options;
        this.check = check;
        this.start = start;
        this.end = end;
        this.cycles = cycles;
        tasks = options.number("tasks", 1);
        section = options.number("section-us", 0) * 1000L;
        inTime = new AtomicLongArray(tasks);
        total = new AtomicLongArray(tasks);
        longest = new AtomicLongArray(tasks);
        waitsSince = new AtomicLongArray(tasks);
        ended = new CountDownLatch(tasks);
    }

    void begin(Locks locks, long round) {
        for (int i = 0; i < tasks; i++) {
            int task = i;
            Locks.Lock lock = locks.named(options.name(round, task));
            Thread thread = new Thread(() -> {
                try {
                    run(task, lock);
                } catch (Throwable e) {
                    fault.set(e);
                } finally {
                    ended.countDown();
                }
            });
            thread.setDaemon(true);
            thread.start();
        }
    }

    /** From here on CPU counts. */
    void mark() {
        cpuBefore = cpuMicros();
    }

    /** Waits for the end, and says what was done. */
    String end(String more) throws InterruptedException {
        long left = Math.max(end - System.nanoTime(), 0);
        ended.await(left + TimeUnit.SECONDS.toNanos(PATIENCE), TimeUnit.NANOSECONDS);
        double cpu = cpuMicros() - cpuBefore;
        if (fault.get() != null) {
            return error(fault.get());
        }
        long now = System.nanoTime();
        long all = 0;
        long most = 0;
        long inside = 0;
        StringJoiner each = new StringJoiner(",", "[", "]");
        for (int i = 0; i < tasks; i++) {
            all += total.get(i);
            inside += inTime.get(i);
            long since = waitsSince.get(i);
            most = Math.max(most, Math.max(longest.get(i), since == 0 ? 0 : now - since));
            each.add(String.valueOf(inTime.get(i)));
        }
        return "{\"cycles\":" + inside + ",\"total\":" + all + ",\"tasks\":" + each + ",\"waits\":" + waits.json()
            + ",\"longest_wait_us\":" + most / 1e3 + ",\"handed\":" + check.handed.json() + ",\"crossed\":" + check.crossed.json()
            + ",\"intruders\":" + check.intruders + (tokens ? ",\"stale_tokens\":" + check.stale : "")
            + ",\"stuck\":" + ended.getCount() + ",\"cpu_us\":" + cpu + more + "}";
    }

    static String error(Throwable e) {
        return "{\"error\":\"" + e.toString().replaceAll("[^ -~]|[\"\\\\]", " ") + "\"}";
    }

    private void run(int task, Locks.Lock lock) throws InterruptedException {
        LockSupport.parkNanos(start - System.nanoTime());
        long last = 0;
        long before = System.nanoTime();
        for (long done = 0; before < end && done < cycles;) {
            waitsSince.set(task, before);
            boolean write = (done + task) % WRITES == 0;
            long token = lock.acquire(write);
            long granted = System.nanoTime();
            waitsSince.set(task, 0);
            waits.add(granted - before);
            longest.set(task, Math.max(longest.get(task), granted - before));
            tokens |= token >= 0;
            check.enter(task, write, token, last, granted);
            last = token;
            while (section > 0 && System.nanoTime() < granted + section) {
                Thread.onSpinWait();
            }
            check.leave(task, token);
            lock.release();
            before = System.nanoTime();
            total.set(task, ++done);
            if (before <= end) {
                inTime.set(task, done);
            }
        }
    }

    static double cpuMicros() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e3;
    }
}
