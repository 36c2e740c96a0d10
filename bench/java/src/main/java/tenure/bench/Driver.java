package tenure.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** Redisson as a contender: says {@code ready}, runs a round for every {@code go}, and prints one line for each. */
public final class Driver {
    private static final int TAKERS = 64;

    private final Options options;
    private final Locks locks;
    private final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private Locks.Lock gate;

    private Driver(Options options) {
        this.options = options;
        locks = new Locks(options);
    }

    public static void main(String[] args) throws Exception {
        Options options = new Options(args);
        if (options.text("url", "").contains(",")) {
            say("{\"unsupported\":\"its RedLock is deprecated\"}");
            return;
        }
        new Driver(options).obey();
        // Threads may still wait for locks.
        Runtime.getRuntime().halt(0);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void obey() throws Exception {
        if (options.text("scenario", "").equals("cycles")) {
            long start = System.nanoTime();
            Round round = new Round(options, new Check(options, Check.Rule.APART), start, start + options.nanos("warmup", 0), Long.MAX_VALUE);
            round.begin(locks, 0);
            round.end("");
        }
        say("ready");
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] words = line.split(" ");
            long round = words.length > 1 ? Long.parseLong(words[1]) : 0;
            switch (words[0]) {
                case "gate" -> {
                    gate = locks.named(options.name(round, 0));
                    gate.acquire(true);
                    say("gated");
                }
                case "go" -> say(go(round, Long.parseLong(words[2])));
                default -> { }
            }
        }
    }

    private String go(long round, long start) throws Exception {
        try {
            return switch (options.text("scenario", "cycles")) {
                case "drain" -> drain(round, start);
                case "hold" -> hold(round);
                case "crash" -> nextHolder(round);
                default -> {
                    Round cycles = round(start, Long.MAX_VALUE);
                    cycles.begin(locks, round);
                    yield cycles.end("");
                }
            };
        } catch (RuntimeException e) {
            return Round.error(e);
        }
    }

    private Round round(long start, long cycles) throws IOException {
        Check check = new Check(options, Check.rule(options));
        return new Round(options, check, start, start + options.nanos("seconds", 1), cycles);
    }

    private String drain(long number, long start) throws Exception {
        Round round = round(start, 1);
        round.begin(locks, number);
        TimeUnit.NANOSECONDS.sleep(Math.max(start - System.nanoTime(), 0) + TimeUnit.SECONDS.toNanos(1));
        say("waiting");
        awaitRelease();
        round.mark();
        long opened = System.nanoTime();
        if (gate != null) {
            gate.release();
            gate = null;
        }
        // The line is made after the end: how long it took is put into it there.
        String line = round.end(",\"took_us\":TOOK");
        return line.replace("TOOK", String.valueOf((System.nanoTime() - opened) / 1e3));
    }

    private void awaitRelease() throws IOException {
        for (String line = orders.readLine(); line != null && !line.equals("release"); line = orders.readLine()) {
            continue;
        }
    }

    /** The threads that took the locks keep them: a hold belongs to its thread. */
    private String hold(long number) throws Exception {
        int holds = options.number("holds", 1000);
        long memory = residentKib();
        long began = System.nanoTime();
        List<Thread> takers = new ArrayList<>();
        for (int i = 0; i < TAKERS; i++) {
            int taker = i;
            Thread thread = new Thread(() -> {
                for (int n = taker; n < holds; n += TAKERS) {
                    try {
                        locks.named(options.name(number, 0) + ":" + n).acquire(true);
                    } catch (InterruptedException e) {
                        return;
                    }
                }
            });
            thread.start();
            takers.add(thread);
        }
        for (Thread taker : takers) {
            taker.join();
        }
        double took = (System.nanoTime() - began) / 1e3;
        long grown = residentKib() - memory;
        say("waiting");
        double cpu = Round.cpuMicros();
        awaitRelease();
        cpu = Round.cpuMicros() - cpu;
        return "{\"cycles\":" + holds + ",\"total\":" + holds + ",\"took_us\":" + took + ",\"grown_kib\":" + grown + ",\"cpu_us\":" + cpu + "}";
    }

    private String nextHolder(long number) throws InterruptedException {
        Locks.Lock lock = locks.named(options.name(number, 0));
        lock.acquire(true);
        long granted = System.nanoTime();
        lock.release();
        return "{\"cycles\":1,\"total\":1,\"granted_ns\":" + granted + "}";
    }

    private static long residentKib() throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
            .filter(line -> line.startsWith("RssAnon:"))
            .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
            .findFirst().orElse(0);
    }
}
