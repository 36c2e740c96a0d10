package tenure.interop;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A thread of its own, because Redisson's locks belong to threads. Its commands run in order. */
final class Actor {
    private final BlockingQueue<String[]> told = new LinkedBlockingQueue<>();
    private final String name;
    private final Verbs verbs;
    private final Permits permits = new Permits();

    Actor(String name, Verbs verbs) {
        this.name = name;
        this.verbs = verbs;
        Thread thread = new Thread(this::run, "actor-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    void tell(String[] words) {
        told.add(words);
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
