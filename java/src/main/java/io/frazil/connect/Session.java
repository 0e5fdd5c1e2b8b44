package io.frazil.connect;

import java.nio.ByteBuffer;

/** One task's session on the native side: what {@link NativeSink} is, and what a test may script. */
interface Session extends AutoCloseable {
    /** Registers a source schema and returns its id in this session. */
    int registerSchema(byte[] schema);

    /** Hands over the first {@code length} bytes of a direct buffer; returns effects. */
    byte[] put(ByteBuffer frame, int length);

    /** Sends a control request; returns effects. */
    byte[] control(byte[] request);

    /** Ends the session; unless it failed or was cancelled it may seal what is open. Again: nothing. */
    @Override
    void close();
}
