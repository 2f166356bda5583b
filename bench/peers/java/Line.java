import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.broker.BrokerService;
import org.apache.activemq.broker.TransportConnector;
import org.apache.activemq.command.ActiveMQTopic;
import org.apache.activemq.network.DiscoveryNetworkConnector;
import org.apache.activemq.network.NetworkBridge;

/**
 * Three ActiveMQ brokers in a line, a topic, and a consumer with a selector for each subscription.
 *
 * <p>{@code Line FOLDER CONDUIT}: {@code selectors.txt} has a broker (0 to 2) and a selector a line, {@code
 * publications.txt} a broker and the values of x, y and z. Writes {@code pairs.txt}: publication, subscription, and how
 * often it came; prints one line of JSON. Nothing here waits for seconds: demand is there when every broker knows of it,
 * and all has arrived when a last message of every publisher has come to a consumer at every broker.
 */
public final class Line {
    private static final int BROKERS = 3;
    private static final ActiveMQTopic TOPIC = new ActiveMQTopic("events");
    private static final String[] NAMES = {"x", "y", "z"};

    private final List<BrokerService> brokers = new ArrayList<>();
    private final List<DiscoveryNetworkConnector> links = new ArrayList<>();
    private final List<Session> sessions = new ArrayList<>();
    private final Map<Long, AtomicInteger> came = new ConcurrentHashMap<>();
    private final List<Long> latencies = new ArrayList<>();
    private final AtomicInteger last = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        Line line = new Line();
        line.start(Boolean.parseBoolean(arguments[1]));
        line.subscribe(Files.readAllLines(folder.resolve("selectors.txt")), Boolean.parseBoolean(arguments[1]));
        int demands = line.demands();
        line.publish(Files.readAllLines(folder.resolve("publications.txt")));
        line.report(folder, demands);
        System.exit(0);
    }

    private void start(boolean conduit) throws Exception {
        List<URI> addresses = new ArrayList<>();
        for (int k = 0; k < BROKERS; k++) {
            BrokerService broker = new BrokerService();
            broker.setBrokerName("b" + k);
            broker.setPersistent(false);
            broker.setUseJmx(false);
            broker.setUseShutdownHook(false);
            TransportConnector connector = broker.addConnector("tcp://127.0.0.1:0");
            broker.start();
            broker.waitUntilStarted();
            brokers.add(broker);
            addresses.add(connector.getConnectUri());
        }
        for (int k = 0; k + 1 < BROKERS; k++) {
            link(brokers.get(k), addresses.get(k + 1), conduit);
            link(brokers.get(k + 1), addresses.get(k), conduit);
        }
        await(() -> links.stream().allMatch(link -> link.activeBridges().size() == 1), "bridges");
    }

    private void link(BrokerService from, URI to, boolean conduit) throws Exception {
        DiscoveryNetworkConnector link = new DiscoveryNetworkConnector(new URI("static:(" + to + ")"));
        link.setName(from.getBrokerName() + ">" + to.getPort());
        link.setNetworkTTL(BROKERS);
        link.setConduitSubscriptions(conduit);
        link.addDynamicallyIncludedDestination(TOPIC);
        from.addNetworkConnector(link);
        links.add(link);
        link.start();
    }

    /** Each subscription, and at each broker one more that wants the last messages. */
    private void subscribe(List<String> selectors, boolean conduit) throws Exception {
        for (BrokerService broker : brokers) {
            ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(broker.getVmConnectorURI());
            factory.setWatchTopicAdvisories(false);
            Connection connection = factory.createConnection();
            connection.start();
            sessions.add(connection.createSession(false, Session.AUTO_ACKNOWLEDGE));
        }
        int[] local = new int[BROKERS];
        for (int k = 0; k < selectors.size(); k++) {
            String[] parts = selectors.get(k).split(" ", 2);
            int home = Integer.parseInt(parts[0]), id = k;
            local[home]++;
            MessageConsumer consumer = sessions.get(home).createConsumer(TOPIC, parts[1]);
            consumer.setMessageListener(message -> take(message, id));
        }
        for (Session session : sessions) {
            session.createConsumer(TOPIC, "last = TRUE").setMessageListener(message -> last.incrementAndGet());
        }
        for (int k = 0; k < BROKERS; k++) {
            int neighbours = k == 0 || k == BROKERS - 1 ? 1 : 2, broker = k;
            int expected = conduit ? local[k] + 1 + neighbours : selectors.size() + BROKERS;
            await(() -> consumers(broker) == expected, "demand at broker " + broker + ": " + expected);
        }
    }

    private int consumers(int broker) {
        try {
            return brokers.get(broker).getDestination(TOPIC).getConsumers().size();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** How many consumers brokers were told of by neighbours. */
    private int demands() throws Exception {
        int demands = 0;
        for (BrokerService broker : brokers) {
            demands += (int) broker.getDestination(TOPIC).getConsumers().stream()
                .filter(consumer -> consumer.getConsumerInfo().isNetworkSubscription()).count();
        }
        return demands;
    }

    private void take(Message message, int subscription) {
        try {
            long latency = System.nanoTime() - message.getLongProperty("sent");
            long pair = ((long) message.getIntProperty("id") << 32) | subscription;
            came.computeIfAbsent(pair, ignored -> new AtomicInteger()).incrementAndGet();
            synchronized (latencies) {
                latencies.add(latency);
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private void publish(List<String> publications) throws Exception {
        List<Session> senders = new ArrayList<>();
        List<MessageProducer> producers = new ArrayList<>();
        for (BrokerService broker : brokers) {
            ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(broker.getVmConnectorURI());
            factory.setWatchTopicAdvisories(false);
            Connection connection = factory.createConnection();
            connection.start();
            senders.add(connection.createSession(false, Session.AUTO_ACKNOWLEDGE));
            producers.add(senders.get(senders.size() - 1).createProducer(TOPIC));
        }
        for (int k = 0; k < publications.size(); k++) {
            String[] parts = publications.get(k).split(" ");
            int home = Integer.parseInt(parts[0]);
            Message message = senders.get(home).createMessage();
            for (int i = 0; i < NAMES.length; i++) {
                message.setLongProperty(NAMES[i], Long.parseLong(parts[1 + i]));
            }
            message.setIntProperty("id", k);
            message.setLongProperty("sent", System.nanoTime());
            producers.get(home).send(message);
        }
        for (int k = 0; k < BROKERS; k++) {
            Message message = senders.get(k).createMessage();
            message.setBooleanProperty("last", true);
            producers.get(k).send(message);
        }
        await(() -> last.get() >= BROKERS * BROKERS, "the last messages");
        long[] before = {-1};
        await(() -> {
            long now = forwarded() + latencies.size();
            boolean still = now == before[0];
            before[0] = now;
            return still;
        }, "rest");
    }

    private long forwarded() {
        long forwarded = 0;
        for (DiscoveryNetworkConnector link : links) {
            for (NetworkBridge bridge : link.activeBridges()) {
                forwarded += bridge.getDequeueCounter();
            }
        }
        return forwarded;
    }

    private void report(Path folder, int demands) throws Exception {
        List<String> pairs = new ArrayList<>();
        came.forEach((pair, times) -> pairs.add((pair >> 32) + " " + (int) (long) pair + " " + times));
        Files.write(folder.resolve("pairs.txt"), pairs);
        long[] sorted = latencies.stream().mapToLong(Long::longValue).toArray();
        Arrays.sort(sorted);
        System.out.printf(
            "{\"publications_over_links\": %d, \"subscriptions_over_links\": %d, \"deliveries\": %d, \"latency_ms\": %.3f}%n",
            forwarded(), demands, sorted.length, sorted.length == 0 ? 0 : sorted[sorted.length / 2] / 1e6);
    }

    private static void await(BooleanSupplier condition, String what) throws Exception {
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (!condition.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("not within a minute: " + what);
            }
            Thread.sleep(200); // between two looks at a condition
        }
    }
}
