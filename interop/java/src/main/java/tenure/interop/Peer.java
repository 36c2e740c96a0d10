package tenure.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;

/** Does with Redisson what it is told line by line: {@code ACTOR VERB ARGS...}. Ends with its input. */
public final class Peer {
    private final Map<String, Actor> actors = new HashMap<>();
    private final Verbs verbs;

    private Peer(RedissonClient client) {
        verbs = new Verbs(client);
    }

    public static void main(String[] args) throws IOException {
        RedissonClient client = Redisson.create(config(args));
        say("ready");
        String quits = new Peer(client).obey(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        if (quits != null) {
            client.shutdown();
            say(quits + " ok");
        }
        // Actors may still wait for locks.
        Runtime.getRuntime().halt(0);
    }

    /** Whole lines, whichever thread answers. */
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static Config config(String[] args) {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        config.setThreads(4);
        config.setNettyThreads(4);
        if (args.length % 2 != 0) {
            throw new IllegalArgumentException("options have values: " + String.join(" ", args));
        }
        for (int i = 0; i < args.length; i += 2) {
            String value = args[i + 1];
            switch (args[i]) {
                case "--single" -> single(config, value);
                case "--cluster" -> cluster(config, value);
                case "--watchdog" -> config.setLockWatchdogTimeout(Long.parseLong(value));
                case "--fair-wait" -> config.setFairLockWaitTimeout(Long.parseLong(value));
                default -> throw new IllegalArgumentException("no such option: " + args[i]);
            }
        }
        return config;
    }

    private static void single(Config config, String address) {
        config.useSingleServer()
            .setAddress("redis://" + address)
            .setDnsMonitoringInterval(-1)
            .setConnectionMinimumIdleSize(1)
            .setConnectionPoolSize(16)
            .setSubscriptionConnectionMinimumIdleSize(1);
    }

    private static void cluster(Config config, String addresses) {
        var servers = config.useClusterServers();
        for (String address : addresses.split(",")) {
            servers.addNodeAddress("redis://" + address);
        }
        servers.setDnsMonitoringInterval(-1)
            .setMasterConnectionMinimumIdleSize(1)
            .setMasterConnectionPoolSize(16)
            .setSlaveConnectionMinimumIdleSize(1)
            .setSlaveConnectionPoolSize(16)
            .setSubscriptionConnectionMinimumIdleSize(1)
            // A replica may not have heard yet of the last holder's counter.
            .setReadMode(ReadMode.MASTER);
    }

    /** Hands lines to their actors; returns the actor that said to quit, if one did. */
    private String obey(BufferedReader lines) throws IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            String[] words = line.trim().split(" +");
            if (words.length == 2 && words[1].equals("quit")) {
                return words[0];
            }
            if (words.length == 3 && words[1].equals("asleep")) {
                Actor actor = actors.get(words[2]);
                say(words[0] + " ok " + (actor != null && actor.isAsleep()));
                continue;
            }
            actors.computeIfAbsent(words[0], name -> new Actor(name, verbs)).tell(words);
        }
        return null;
    }
}
