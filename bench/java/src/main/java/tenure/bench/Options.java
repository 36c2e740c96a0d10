package tenure.bench;

import java.util.HashMap;
import java.util.Map;

/** The options that every driver takes, in every language. */
final class Options {
    private final Map<String, String> given = new HashMap<>();

    Options(String[] args) {
        if (args.length % 2 != 0) {
            throw new IllegalArgumentException("options have values: " + String.join(" ", args));
        }
        for (int i = 0; i < args.length; i += 2) {
            given.put(args[i].substring(2), args[i + 1]);
        }
    }

    String text(String name, String otherwise) {
        return given.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, String.valueOf(otherwise)));
    }

    long nanos(String name, double otherwise) {
        return (long) (Double.parseDouble(text(name, String.valueOf(otherwise))) * 1e9);
    }

    boolean oneName() {
        return text("names", "own").equals("one");
    }

    /** The same in all processes where all want one name. */
    String name(long round, int task) {
        String name = "bench:" + text("contender", "") + ":" + round;
        return oneName() ? name : name + ":" + number("process", 0) + ":" + task;
    }
}
