package tenure.bench;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Whether holders exclude each other and tokens grow, and how long a hand-over takes. Holders leave a note inside: who is inside,
 * when the last one left, its token, who it was; then a byte for each task, for locks with several holders.
 */
final class Check {
    private static final VarHandle WORDS = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final int SLOTS = 32;
    private static final int CROWD = 64;
    private static final int PERMITS = 8;

    enum Rule { APART, ONE, SHARED, PERMITS }

    final AtomicLong intruders = new AtomicLong();
    final AtomicLong stale = new AtomicLong();
    final Counts handed = new Counts();
    final Counts crossed = new Counts();
    private final Rule rule;
    private final ByteBuffer place;
    private final long first;
    private final long tasks;

    Check(Options options, Rule rule) throws IOException {
        this.rule = rule;
        tasks = options.number("tasks", 1);
        first = options.number("process", 0) * tasks;
        String path = options.text("check", "");
        if (path.isEmpty()) {
            place = ByteBuffer.allocateDirect(4096);
            return;
        }
        try (RandomAccessFile file = new RandomAccessFile(path, "rw")) {
            place = file.getChannel().map(FileChannel.MapMode.READ_WRITE, 0, 4096);
        }
    }

    static Rule rule(Options options) {
        if (!options.oneName()) {
            return Rule.APART;
        }
        return switch (options.text("mode", "mutex")) {
            case "rw" -> Rule.SHARED;
            case "semaphore" -> Rule.PERMITS;
            default -> Rule.ONE;
        };
    }

    /** After a grant. A token of -1 is none. */
    void enter(int task, boolean write, long token, long before, long granted) {
        switch (rule) {
            case APART -> compare(token, before);
            case ONE -> enterAlone(first + task + 1, token, granted);
            default -> enterBeside((int) first + task, write);
        }
    }

    /** Just before the release. */
    void leave(int task, long token) {
        switch (rule) {
            case APART -> { }
            case ONE -> {
                set(1, System.nanoTime());
                set(2, Math.max(token, 0));
                set(3, first + task + 1);
                set(0, 0);
            }
            default -> place.put(SLOTS + (int) first + task, (byte) 0);
        }
    }

    private void enterAlone(long me, long token, long granted) {
        long inside = get(0);
        if (inside != 0) {
            intruders.incrementAndGet();
        }
        compare(token, get(2));
        set(0, me);
        long last = get(3);
        if (last != 0 && last != me && inside == 0) {
            boolean ours = first < last && last <= first + tasks;
            (ours ? handed : crossed).add(granted - get(1));
        }
    }

    private void enterBeside(int me, boolean write) {
        int readers = 0;
        int writers = 0;
        for (int slot = 0; slot < CROWD; slot++) {
            int state = slot == me ? 0 : place.get(SLOTS + slot);
            readers += state == 1 ? 1 : 0;
            writers += state == 2 ? 1 : 0;
        }
        boolean bad = rule == Rule.PERMITS
            ? readers + writers >= PERMITS
            : writers > 0 || write && readers > 0;
        if (bad) {
            intruders.incrementAndGet();
        }
        place.put(SLOTS + me, (byte) (write ? 2 : 1));
    }

    private void compare(long token, long before) {
        if (token >= 0 && token <= before) {
            stale.incrementAndGet();
        }
    }

    private long get(int word) {
        return (long) WORDS.getVolatile(place, word * 8);
    }

    private void set(int word, long value) {
        WORDS.setVolatile(place, word * 8, value);
    }
}
