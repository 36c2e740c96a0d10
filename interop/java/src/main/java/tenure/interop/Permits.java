package tenure.interop;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** The ids of expirable permits that an actor took and has not given back, by name. */
final class Permits {
    private final Map<String, Deque<List<String>>> taken = new HashMap<>();

    void took(String name, List<String> ids) {
        taken.computeIfAbsent(name, n -> new ArrayDeque<>()).push(ids);
    }

    /** What was taken last. */
    List<String> last(String name) {
        Deque<List<String>> all = taken.get(name);
        if (all == null || all.isEmpty()) {
            throw new IllegalArgumentException("took no permit of " + name);
        }
        return all.pop();
    }
}
