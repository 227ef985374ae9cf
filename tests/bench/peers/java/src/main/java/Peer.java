import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.IntConsumer;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Redisson's locks: see the README of the parent folder. Each caller is a thread, since its locks belong to threads. */
public final class Peer {
    /** The time to live in milliseconds, which is also its watchdog's default. */
    private static final long TTL = 30_000;
    private static final int AT_ONCE = 64;
    /** The slots of the semaphore that all callers share. */
    private static final int SLOTS = 10;

    private final RedissonClient client;
    private final String side;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<RLock> held = new ArrayList<>();

    private Peer(String port, String side) {
        Config config = new Config();
        config.setLockWatchdogTimeout(TTL);
        config.useSingleServer().setAddress("redis://127.0.0.1:" + port);
        this.client = Redisson.create(config);
        this.side = side;
    }

    public static void main(String[] args) throws Exception {
        Peer peer = new Peer(args[0], args[1]);
        peer.lock("first");
        System.out.println("{\"ready\": \"redisson " + Redisson.class.getPackage().getImplementationVersion() + "\"}");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            System.out.println(peer.work(words[0], Arrays.stream(words).skip(1).mapToInt(Integer::parseInt).toArray()));
        }
        System.exit(0);
    }

    private RLock lock(String name) {
        return switch (side) {
            case "RLock" -> client.getLock(name);
            case "RFairLock" -> client.getFairLock(name);
            case "RFencedLock" -> client.getFencedLock(name);
            default -> throw new IllegalArgumentException("there is no side " + side);
        };
    }

    private String work(String work, int[] numbers) throws Exception {
        switch (work) {
            case "pairs":
                return pairs(numbers[0], numbers[1], caller -> {
                    RLock lock = lock("pairs/" + caller);
                    lock.lock();
                    lock.unlock();
                });
            case "semaphore":
                RPermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("slots");
                semaphore.trySetPermits(SLOTS);
                return pairs(numbers[0], numbers[1], caller -> semaphore.release(acquired(semaphore)));
            case "readers":
                return pairs(numbers[0], numbers[1], caller -> {
                    RLock lock = client.getReadWriteLock("read").readLock();
                    lock.lock();
                    lock.unlock();
                });
            case "several":
                return pairs(numbers[0], numbers[1], caller -> {
                    RLock[] locks = Stream.of("a", "b", "c").map(name -> lock("several/" + caller + "/" + name)).toArray(RLock[]::new);
                    RLock all = client.getMultiLock(locks);
                    all.lock();
                    all.unlock();
                });
            case "handoff":
                return handoff(numbers[0], numbers[1]);
            case "hold":
                return hold(numbers[0]);
            case "drop":
                for (RLock lock : held) {
                    // Another thread holds it.
                    lock.forceUnlock();
                }
                held.clear();
                return "{\"held\": 0}";
            default:
                return "{\"cannot\": \"it does not tell\"}";
        }
    }

    private static String acquired(RPermitExpirableSemaphore semaphore) {
        try {
            return semaphore.acquire(TTL, TimeUnit.MILLISECONDS);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private String pairs(int callers, int millis, IntConsumer pair) throws Exception {
        AtomicLong count = new AtomicLong();
        long begin = System.nanoTime();
        long end = begin + millis * 1_000_000L;
        each(callers, caller -> {
            while (System.nanoTime() < end) {
                pair.accept(caller);
                count.incrementAndGet();
            }
        });
        double took = (System.nanoTime() - begin) / 1e6;
        return "{\"count\": " + count + ", \"millis\": " + took + "}";
    }

    private String handoff(int tasks, int millis) throws Exception {
        int[] counts = new int[tasks];
        long end = System.nanoTime() + millis * 1_000_000L;
        each(tasks, task -> {
            while (System.nanoTime() < end) {
                RLock lock = lock("handoff");
                lock.lock();
                if (System.nanoTime() < end) {
                    counts[task] += 1;
                }
                lock.unlock();
            }
        });
        var all = Arrays.stream(counts).summaryStatistics();
        return "{\"count\": " + all.getSum() + ", \"millis\": " + millis + ", \"least\": " + all.getMin() + ", \"most\": " + all.getMax() + "}";
    }

    private String hold(int count) throws Exception {
        AtomicInteger next = new AtomicInteger();
        each(AT_ONCE, thread -> {
            for (int number = next.incrementAndGet(); number <= count; number = next.incrementAndGet()) {
                RLock lock = lock("held/" + number);
                lock.lock();
                synchronized (held) {
                    held.add(lock);
                }
            }
        });
        return "{\"held\": " + held.size() + "}";
    }

    private void each(int count, IntConsumer work) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int own = number;
            all.add(CompletableFuture.runAsync(() -> work.accept(own), threads));
        }
        for (Future<?> one : all) {
            one.get();
        }
    }
}
