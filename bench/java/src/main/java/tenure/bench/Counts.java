package tenure.bench;

import java.util.StringJoiner;
import java.util.concurrent.atomic.AtomicLongArray;

/** Counts of durations: the power of two, and 32 steps within it. */
final class Counts {
    private final AtomicLongArray counts = new AtomicLongArray(64 * 32);

    void add(long nanos) {
        long least = Math.max(nanos, 32);
        int power = 63 - Long.numberOfLeadingZeros(least);
        counts.incrementAndGet(power * 32 + (int) (least >> (power - 5)) - 32);
    }

    String json() {
        StringJoiner text = new StringJoiner(",", "{", "}");
        for (int i = 0; i < counts.length(); i++) {
            if (counts.get(i) > 0) {
                text.add("\"" + i + "\":" + counts.get(i));
            }
        }
        return text.toString();
    }
}
