import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import software.amazon.event.ruler.Machine;

/** Event-ruler over boxes, told line by line what to do as the peers in Rust are: see `bench/peers/programs.py`. */
public final class Ruler {
    private static final String[] NAMES = {"x", "y", "z"};

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        LongBuffer sides = numbers(folder.resolve("boxes.bin"));
        List<String> events = events(numbers(folder.resolve("points.bin")));
        long began = System.nanoTime();
        Machine machine = new Machine();
        for (int k = 0; 6 * k < sides.limit(); k++) {
            machine.addRule(Integer.toString(k), rule(sides, 6 * k));
        }
        say(System.nanoTime() - began);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            began = System.nanoTime();
            List<List<String>> found = new ArrayList<>(events.size());
            for (String event : events) {
                found.add(machine.rulesForJSONEvent(event));
            }
            if (line.equals("match")) {
                say(System.nanoTime() - began);
            } else {
                System.out.println(write(found, folder.resolve("pairs.bin")));
            }
        }
    }

    private static LongBuffer numbers(Path path) throws Exception {
        return ByteBuffer.wrap(Files.readAllBytes(path)).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }

    /** A box: the low corner, then the high one, which is outside. */
    private static String rule(LongBuffer sides, int at) {
        List<String> parts = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            parts.add(String.format("\"%s\": [{\"numeric\": [\">=\", %d, \"<\", %d]}]", NAMES[i], sides.get(at + i), sides.get(at + 3 + i)));
        }
        return "{" + String.join(", ", parts) + "}";
    }

    private static List<String> events(LongBuffer points) {
        List<String> events = new ArrayList<>();
        for (int at = 0; at < points.limit(); at += 3) {
            events.add(String.format("{\"x\": %d, \"y\": %d, \"z\": %d}", points.get(at), points.get(at + 1), points.get(at + 2)));
        }
        return events;
    }

    private static int write(List<List<String>> found, Path path) throws Exception {
        int count = found.stream().mapToInt(List::size).sum();
        ByteBuffer bytes = ByteBuffer.allocate(8 * count).order(ByteOrder.LITTLE_ENDIAN);
        for (int k = 0; k < found.size(); k++) {
            for (String rule : found.get(k)) {
                bytes.putInt(k).putInt(Integer.parseInt(rule));
            }
        }
        Files.write(path, bytes.array());
        return count;
    }

    private static void say(long nanoseconds) {
        System.out.println(nanoseconds / 1e9);
    }
}
