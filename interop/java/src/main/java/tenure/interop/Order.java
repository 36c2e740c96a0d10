package tenure.interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A command: {@code ACTOR VERB KIND NAME} and then words and options {@code KEY=VALUE} in any order. */
final class Order {
    final String verb;
    final String kind;
    final String name;
    final Permits permits;
    private final List<String> words = new ArrayList<>();
    private final Map<String, String> options = new HashMap<>();

    Order(String[] line, Permits permits) {
        if (line.length < 4) {
            throw new IllegalArgumentException("ACTOR VERB KIND NAME ...");
        }
        verb = line[1];
        kind = line[2];
        name = line[3];
        this.permits = permits;
        for (int i = 4; i < line.length; i++) {
            int sign = line[i].indexOf('=');
            if (sign < 0) {
                words.add(line[i]);
            } else {
                options.put(line[i].substring(0, sign), line[i].substring(sign + 1));
            }
        }
    }

    String word(int i) {
        if (i >= words.size()) {
            throw new IllegalArgumentException(verb + " needs more words");
        }
        return words.get(i);
    }

    int number(int i) {
        return Integer.parseInt(word(i));
    }

    /** How many permits; one unless said. */
    int n() {
        return Integer.parseInt(options.getOrDefault("n", "1"));
    }

    /** In milliseconds; -1 is Redisson's word for a lease that its watchdog renews, or a permit that never ends. */
    long lease() {
        return Long.parseLong(options.getOrDefault("lease", "-1"));
    }

    /** In milliseconds; not at all unless said. */
    long patience() {
        return Long.parseLong(options.getOrDefault("wait", "0"));
    }

    boolean waits() {
        return options.containsKey("wait");
    }

    /** Permits by id; those that the actor took last unless said. */
    List<String> ids() {
        String ids = options.get("id");
        return ids == null ? permits.last(name) : List.of(ids.split(","));
    }

    IllegalArgumentException unknown() {
        return new IllegalArgumentException("no such command: " + verb + " " + kind);
    }
}
