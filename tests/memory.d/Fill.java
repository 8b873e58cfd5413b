import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** Takes memory until there is none: of the heap, or with a word beside it. */
public class Fill {
    public static void main(String[] words) {
        List<Object> all = new ArrayList<>();
        try {
            for (;;) {
                byte[] b = new byte[1 << 20];
                Arrays.fill(b, (byte) 1);
                all.add(b);
            }
        } catch (OutOfMemoryError e) {
            all.clear();
            System.out.println("caught, of " + (Runtime.getRuntime().maxMemory() >> 20) + " MB");
        }
        while (words.length > 0) {
            java.nio.ByteBuffer b = java.nio.ByteBuffer.allocateDirect(1 << 20);
            for (int i = 0; i < 1 << 20; i += 4096)
                b.put(i, (byte) 1);
            all.add(b);
        }
    }
}
