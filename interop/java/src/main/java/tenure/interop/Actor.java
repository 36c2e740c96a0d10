package tenure.interop;

import java.util.Arrays;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A thread of its own, because Redisson's locks belong to threads. Its commands run in order. */
final class Actor {
    private final BlockingQueue<String[]> told = new LinkedBlockingQueue<>();
    private final String name;
    private final Verbs verbs;
    private final Permits permits = new Permits();
    private final Thread thread;

    Actor(String name, Verbs verbs) {
        this.name = name;
        this.verbs = verbs;
        thread = new Thread(this::run, "actor-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    void tell(String[] words) {
        told.add(words);
    }

    /**
     * Whether it waits to be woken, and not for an answer of the server. A message that wakes all who wait counts those who
     * are asleep: who has asked and is about to sleep misses it.
     */
    boolean isAsleep() {
        return Arrays.stream(thread.getStackTrace()).anyMatch(Actor::sleeps);
    }

    private static boolean sleeps(StackTraceElement frame) {
        return switch (frame.getClassName()) {
            case "java.util.concurrent.Semaphore", "org.redisson.misc.ReclosableLatch" -> true;
            // It waits without a thread, and misses nothing.
            case "org.redisson.RedissonFencedLock" -> frame.getMethodName().equals("lockAndGetToken");
            default -> false;
        };
    }

    private void run() {
        while (true) {
            String answer;
            try {
                String value = verbs.run(new Order(told.take(), permits));
                answer = value.isEmpty() ? "ok" : "ok " + value;
            } catch (InterruptedException e) {
                return;
            } catch (Exception e) {
                answer = "err " + e.getClass().getSimpleName() + ": " + String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
            }
            Peer.say(name + " " + answer);
        }
    }
}
